"""Configurable machine scheduling: jobs, configurations, blocks, and fewest machines.

Each machine takes a configuration, a multiset of blocks; each block serves one job; a block of
kind ``i`` gives job ``j`` an amount ``f_j(i)``; every job must get its demand.  MIG is the case
where machines are GPUs and blocks are slices.  The algorithms here work on any instance, and
each says what it guarantees:

* ``greedy``    4 ln(2n) times the optimum, whatever the configurations
* ``rounding``  twice the linear program, and two machines more for each kind of block
* ``ptas``      1 + eps times the optimum, for few kinds of blocks in small configurations
"""
