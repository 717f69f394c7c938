"""Make the seven tables of the PAI trace of 2020, with its published shares.

Theory of operation.  What recurs is drawn first: *groups*, the runs of one program by one
user (``population``).  Their traits are dealt out rather than drawn, so that the published
share of each is met by weight, whatever the seed (``deal``).  Jobs are runs of groups, with
times (``runs``); so far goes the ``plan``.  Then instances are made in the order of their
starts, a bounded number at a time: each is put on a machine with room (``place``) and given
what it used (``use``).  What machines measured follows from what ran there (``machines``).

The real scheduler is not played again: waits are drawn, and placement keeps machines from
holding more than they have, no more.
"""

from interlane.traces.synth_pai.plan import Scope, TracePlan, plan
from interlane.traces.synth_pai.write import Written, write_tables

__all__ = ["Scope", "TracePlan", "Written", "plan", "write_tables"]
