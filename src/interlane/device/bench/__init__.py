"""How fast sharing is on this machine: real daemons, real processes, beside the bounds.

Every figure is taken in each of several rounds, one after the other, so that a machine that is
busy for a while is busy for all of them.  What is compared is medians over all rounds; the best
is told beside them, because on a shared machine it is nearer to what an idle one would do.
"""
