"""Carry MIG transitions out: the journal on disk, and the programs that change real GPUs.

Everything that decides is in ``interlane.mig.transition``; here are files and processes.
"""
