"""Fill a cluster until nothing fits: the arrivals-only experiment of "Beware of Fragmentation".

Nothing ever finishes.  Jobs come one by one; one that does not fit is cancelled at once and
never tried again.  What is left idle in the end is the placer's doing alone (ATC'23, sections
3 and 6).  It runs through the real kernel, like everything else.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.kernel.ledger import Ledger
from interlane.kernel.scheduler import Scheduler
from interlane.metrics.fragments import fragments
from interlane.model import (
    Cancelled,
    Cluster,
    InvalidField,
    Job,
    JobId,
    Placement,
    Start,
    Started,
    Submitted,
)
from interlane.model.units import MILLI
from interlane.policy.base import TypicalDemand
from interlane.policy.catalogue import PlacerRecipe
from interlane.policy.order import Fifo
from interlane.policy.policy import Policy
from interlane.policy.typical import typical_demands
from interlane.tables import CPU, typical_rows

FULL: Final = 1.3
"""How much GPU share arrives, in units of the cluster's capacity."""

Column = NDArray[np.float64]


def arrivals(
    jobs: Sequence[Job], cluster: Cluster, seed: int, ratio: float = FULL
) -> list[Job]:
    """Return the jobs in the order in which they come, ``ratio`` times the capacity in all.

    As published: sorted by name and shuffled, then more are drawn with replacement until the
    next would pass the mark, by the share that it asks of one GPU.  A list that asks for more
    than that loses jobs at random instead.
    """
    rng = Random(seed)
    named = sorted(jobs, key=lambda job: job.id)
    coming = list(named)
    rng.shuffle(coming)
    mark = ratio * cluster.gpus * MILLI
    asked = sum(job.request.gpu_milli for job in coming)
    if not asked:
        raise InvalidField("trace", "without GPUs", "a cluster fills with jobs that use GPUs")
    while asked > mark:
        asked -= coming.pop(rng.randrange(len(coming))).request.gpu_milli
    if len(coming) == len(named):
        coming += _drawn(named, mark - asked, rng)
    return [
        replace(job, id=JobId(f"{job.id}/{number}"), submitted_s=float(number), serial=number)
        for number, job in enumerate(coming)
    ]


def _drawn(named: list[Job], missing: float, rng: Random) -> Iterator[Job]:
    """Yield jobs drawn with replacement until the next would exceed what is missing."""
    while True:
        job = named[rng.randrange(len(named))]
        demand = job.request.tasks[0].demand
        if missing < (demand.gpu_milli if demand.gpus else 0):
            return
        yield job
        missing -= job.request.gpu_milli


@dataclass(frozen=True)
class FillCurve:
    """What was seen after every arrival."""

    capacity_milli: int
    arrived_milli: NDArray[np.int64]
    """GPU share that has been asked for, placed or not."""
    held_milli: NDArray[np.int64]
    """GPU share that is allocated."""
    fragment_milli: Column | None
    """Idle share that typical demands cannot use, where somebody wanted to know."""
    placed: int

    @property
    def load_percent(self) -> NDArray[np.int64]:
        """What has been asked for, in whole percent of the capacity."""
        load: NDArray[np.int64] = np.rint(100 * self.arrived_milli / self.capacity_milli)
        return load.astype(np.int64)

    @property
    def allocated_percent(self) -> Column:
        """What is allocated, in percent of the capacity."""
        percent: Column = 100 * self.held_milli / self.capacity_milli
        return percent

    @property
    def fragment_ratio_percent(self) -> Column:
        """How much of the idle share is fragments."""
        if self.fragment_milli is None:
            raise InvalidField("fragments", None, "they were not watched in this run")
        idle = self.capacity_milli - self.held_milli
        ratio: Column = 100 * self.fragment_milli / np.maximum(idle, 1)
        return ratio

    def at(self, load_percent: int, column: Column) -> float:
        """Return the mean of a column over the arrivals of one percent of load."""
        here = column[self.load_percent == load_percent]
        if not len(here):
            raise InvalidField("load", load_percent, "the run does not pass through it")
        return float(here.mean())


def fill(
    cluster: Cluster,
    coming: Sequence[Job],
    recipe: PlacerRecipe,
    seed: int = 0,
    *,
    watch_fragments: bool = False,
) -> FillCurve:
    """Place the jobs one by one and note what is allocated after each."""
    typical = typical_demands(Counter(job.request for job in coming).items())
    scheduler = Scheduler(cluster, Policy(Fifo(), recipe.make(typical)), seed)
    watch = _Watch(cluster, typical) if watch_fragments else None
    held = placed = 0
    held_milli = np.empty(len(coming), np.int64)
    fragment_milli = np.empty(len(coming), np.float64) if watch else None
    for number, job in enumerate(coming):
        placement = _try(scheduler, job)
        if placement is not None:
            placed += 1
            held += job.request.gpu_milli
            if watch is not None:
                watch.note(job, placement)
        held_milli[number] = held
        if watch is not None and fragment_milli is not None:
            fragment_milli[number] = watch.total_milli
    arrived = np.cumsum([job.request.gpu_milli for job in coming], dtype=np.int64)
    return FillCurve(cluster.gpus * MILLI, arrived, held_milli, fragment_milli, placed)


def _try(scheduler: Scheduler, job: Job) -> Placement | None:
    """Hand one job in; return where it went, or take it back."""
    now_s = job.submitted_s
    for action in scheduler.handle(Submitted(job), now_s):
        if isinstance(action, Start):
            scheduler.learn(Started(job.id, action.placement), now_s)
            return action.placement
    if scheduler.state(job.id) is not None:  # one that can never fit is forgotten already
        scheduler.learn(Cancelled(job.id), now_s)
    return None


class _Watch:
    """Keeps books of its own and the sum of fragments over all machines up to date."""

    def __init__(self, cluster: Cluster, typical: tuple[TypicalDemand, ...]) -> None:
        self._ledger = Ledger(cluster)
        demands = [kind.demand for kind in typical]
        self._typical = typical_rows(demands, self._ledger.types.mask)
        self._weights = np.array([kind.weight for kind in typical], np.float64)
        self._profiles: dict[object, tuple[int, ...]] = {}
        self._here = np.array([self._fragments(n) for n in range(len(cluster))])
        self.total_milli = float(self._here.sum())

    def note(self, job: Job, placement: Placement) -> None:
        """Take a placement into the state."""
        profiles = self._profiles.get(job.request)
        if profiles is None:
            demands = [task.demand for task in job.request.tasks]
            profiles = tuple(self._ledger.add_ask(d, d.gpu_types, 1) for d in demands)
            self._profiles[job.request] = profiles
        self._ledger.hold(self._ledger.to_rows(placement, profiles))
        for machine_id in placement.machines:
            number = self._ledger.number(machine_id)
            now = self._fragments(number)
            self.total_milli += now - self._here[number]
            self._here[number] = now

    def _fragments(self, number: int) -> float:
        free = self._ledger.free
        cpu_milli = free[number, CPU]
        return float(fragments(free, number, cpu_milli, self._typical, self._weights))
