"""Figures from the log of a run: what happened is known, and nothing else is asked.

``log`` is the log in columns; ``outcomes``, ``attempts`` and ``machines`` read jobs, attempts
and machines from it, and ``summary``, ``level`` and ``timeline`` make figures and sentences of
those.  ``replay`` follows the table of machines through time; ``fragments`` is FGD's formula,
which placers look ahead with, too.

May be touched: every figure is a function of the log and of its arguments.  Published figures
must not change by a digit, so that sums are taken in the order in which they always were.
"""
