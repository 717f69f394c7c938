"""Engines own machines and run things; each stands behind ``live.port.Engine``.

Engines know neither one another nor the simulator, and nothing above knows their inside.
"""
