"""The event log: what happened, in columns.

The log is the product: metrics, timelines, stories and figures are functions of it.  A run
of a million jobs has three million events, so they are kept as columns, not as objects.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import Cluster, Job, Placement, Refusal


class Fact(IntEnum):
    """What kind of event a line of the log is."""

    SUBMITTED = 0
    STARTED = 1
    PREEMPTED = 2
    FINISHED = 3
    REFUSED = 4
    CANCELLED = 5
    MACHINE_LOST = 6
    MACHINE_RETURNED = 7
    JOB_LOST = 8
    """A job was thrown back into the queue because its machine was lost."""
    GROWN = 9
    """A running job got more instances."""


PLACED: Final = (Fact.STARTED, Fact.GROWN)
"""Facts that come with a placement."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log, spelled out."""

    at_s: float
    fact: Fact
    subject: int
    """Number of the job, or of the machine for facts about machines."""
    placement: Placement | None = None
    in_favour_of: int | None = None
    """Number of the job for which this one was preempted."""


class EventLog:
    """What happened to the jobs of one run, in order."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job]) -> None:
        self.cluster = cluster
        self.jobs = jobs
        self._at_s = array("d")
        self._facts = array("b")
        self._subjects = array("q")
        self.placements: list[Placement] = []
        """Where jobs started and grew, one for every such line, in order."""
        self.favoured: list[int] = []
        """For whom jobs were stopped, one for every ``PREEMPTED`` line, in order."""
        self.refusals: dict[int, Refusal] = {}
        """Why jobs were refused for good, by job number."""

    def __len__(self) -> int:
        return len(self._at_s)

    def add(self, at_s: float, fact: Fact, subject: int) -> None:
        """Append a line."""
        self._at_s.append(at_s)
        self._facts.append(fact)
        self._subjects.append(subject)

    def add_start(self, at_s: float, job: int, placement: Placement) -> None:
        """Append the start of a job."""
        self._at_s.append(at_s)
        self._facts.append(1)
        self._subjects.append(job)
        self.placements.append(placement)

    def add_growth(self, at_s: float, job: int, more: Placement) -> None:
        """Append that a running job got more instances."""
        self.add(at_s, Fact.GROWN, job)
        self.placements.append(more)

    def add_preemption(self, at_s: float, job: int, in_favour_of: int) -> None:
        """Append that a job was stopped for another."""
        self.add(at_s, Fact.PREEMPTED, job)
        self.favoured.append(in_favour_of)

    def columns(self) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.int64]]:
        """Return times, facts and subjects."""
        return (
            np.array(self._at_s, np.float64),
            np.array(self._facts, np.int8),
            np.array(self._subjects, np.int64),
        )

    def lines(self) -> Iterator[Line]:
        """Yield the log line by line."""
        places, favoured = iter(self.placements), iter(self.favoured)
        for at_s, fact, subject in zip(self._at_s, self._facts, self._subjects, strict=True):
            placement = next(places) if fact in PLACED else None
            for_whom = next(favoured) if fact == Fact.PREEMPTED else None
            yield Line(at_s, Fact(fact), subject, placement, for_whom)
