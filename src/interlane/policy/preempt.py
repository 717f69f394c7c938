"""Whom to stop for a more urgent job: the victims that lose the least work.

A job may take the place of running jobs with a strictly larger *rank* only.  The sorted list
of running ranks therefore falls, in lexicographic order, with every preemption; as ranks do
not fall while a job waits, no chain of preemptions can come back to where it was.

The search itself is in ``victims``.
"""

from dataclasses import dataclass

from interlane.model import InvalidField


@dataclass(frozen=True, slots=True)
class Preemption:
    """How running jobs may be stopped.

    ``min_run_s`` protects a job that has just started; ``restart_s`` is what stopping and
    starting again costs a victim on top of the work since its last checkpoint.
    """

    min_run_s: float = 0.0
    restart_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("min_run_s", "restart_s"):
            if getattr(self, name) < 0:
                raise InvalidField(name, getattr(self, name), "it must be 0 or more")
