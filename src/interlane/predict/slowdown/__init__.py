"""Estimate how much work slows down beside other work on the same GPU.

``pairs`` is what a predictor sees, ``models`` are predictors, ``bounds`` says how far they may
be off; ``table`` holds what schedulers read, ``online`` keeps it true, ``multiway`` goes beyond
two; ``evaluate`` judges, ``store`` keeps models as data.
"""
