"""Who holds capacity: running, starting and stopping jobs, in the order of their slots."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.kernel.held import RunningRows
from interlane.kernel.queue import QueuedJob
from interlane.model import MILLI, gang_ratio
from interlane.model.lifecycle import JobState
from interlane.policy.base import Order
from interlane.policy.preempt import Preemption
from interlane.tables import AT_INSTANCES, AT_MACHINE, Table

OVERDUE_SHARE: Final = 0.5
"""A job past its estimate is expected to run on for this share of what it has run."""

_PAST_THE_STEP_S: Final = 1e-3


class _Table:
    """Numbers about running jobs, one row per slot, for questions about all of them."""

    __slots__ = ("checkpoint_s", "cpu_milli", "gpu_milli", "left_s", "rank", "started_s")

    def __init__(self, size: int) -> None:
        self.started_s = np.zeros(size)
        self.left_s = np.zeros(size)
        """Estimated length of the present attempt, by the instances that the job has."""
        self.rank = np.zeros(size)
        """Rank when the present attempt began, or when it last rose by a step."""
        self.checkpoint_s = np.zeros(size)
        self.gpu_milli = np.zeros(size, np.int64)
        self.cpu_milli = np.zeros(size, np.int64)

    def move(self, source: int, target: int, *, ranked: bool) -> None:
        """Copy a row; what only preemption needs is left out where there is none."""
        self.started_s[target] = self.started_s[source]
        self.left_s[target] = self.left_s[source]
        if ranked:
            for column in (self.rank, self.checkpoint_s):
                column[target] = column[source]
            self.gpu_milli[target] = self.gpu_milli[source]
            self.cpu_milli[target] = self.cpu_milli[source]

    def doubled(self) -> "_Table":
        """Return a table with the same rows and room for as many more."""
        size = len(self.rank)
        larger = _Table(2 * size)
        for name in self.__slots__:
            getattr(larger, name)[:size] = getattr(self, name)
        return larger


@dataclass(frozen=True, slots=True)
class Deserving:
    """What running jobs hold, the least deserving first: a first look at who could make way."""

    falling: NDArray[np.float64]
    """Ranks with their sign turned, so that they rise from the least deserving on."""
    gpu_milli: NDArray[np.int64]
    """Held by this job and all before it."""
    cpu_milli: NDArray[np.int64]

    def held_above(self, rank: float) -> tuple[int, int, int]:
        """Return how many jobs have a larger rank, and the GPU and CPU that they hold."""
        count = int(self.falling.searchsorted(-rank, side="left"))
        if count == 0:
            return 0, 0, 0
        return count, int(self.gpu_milli[count - 1]), int(self.cpu_milli[count - 1])


class Running:
    """Jobs that hold capacity: what they hold, how deserving they are, when they end."""

    def __init__(self, order: Order, *, expects_ends: bool = True) -> None:
        self._order = order
        self._tracked = expects_ends or order.preempts
        """Whether anybody asks for more than who holds what."""
        self._ranked = order.preempts
        self.held = RunningRows(64) if expects_ends else None
        """What they hold, by slot, where somebody asks what ends would set free."""
        self._entries: list[QueuedJob] = []
        """Dense: the last one moves into the place of one that leaves."""
        self._table = _Table(64)
        """Row ``i`` is about entry ``i``."""
        self._rises: list[tuple[float, int, float, QueuedJob]] = []
        """(when, serial, start of the attempt, job) of steps in rank that are to come."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[QueuedJob]:
        return iter(self._entries)

    def add(self, entry: QueuedJob) -> None:
        """Note that a job now holds capacity."""
        slot = entry.slot = len(self._entries)
        self._entries.append(entry)
        if not self._tracked:
            return
        if slot == len(self._table.rank):
            self._table = self._table.doubled()
        table, request = self._table, entry.job.request
        table.started_s[slot] = entry.started_s
        table.left_s[slot] = _length_s(entry)
        self.note_rows(entry)
        if self._ranked:
            table.checkpoint_s[slot] = entry.job.checkpoint_s
            table.gpu_milli[slot] = request.gpu_milli
            table.cpu_milli[slot] = request.cpu_milli
            self._set_rank(entry, entry.ran_s, entry.started_s)

    def note_rows(self, entry: QueuedJob) -> None:
        """Note what a job holds now, which may be more or less than before."""
        if self.held is not None:
            assert entry.rows is not None
            self.held.put(entry.slot, entry.rows, len(self._entries))

    def note_growth(self, entry: QueuedJob, now_s: float) -> None:
        """Expect a job to end sooner that has got the instances it was growing by."""
        if not self._tracked:
            return
        assert entry.rows is not None
        instances = entry.rows[:, AT_INSTANCES]
        grew_by = instances.sum() / instances[: -entry.growing].sum()
        ran_s, left_s = now_s - entry.started_s, self._table.left_s
        left_s[entry.slot] = ran_s + max(left_s[entry.slot] - ran_s, 0.0) / grew_by

    def remove(self, entry: QueuedJob) -> None:
        """Note that a job holds nothing any more."""
        slot, last = entry.slot, self._entries.pop()
        if last is not entry:
            self._entries[slot] = last
            if self._tracked:
                self._table.move(last.slot, slot, ranked=self._ranked)
            if self.held is not None:
                self.held.move(last.slot, slot)
            last.slot = slot
        entry.slot = -1

    def next_rise_s(self) -> float | None:
        """Return when the next rank rises by a step."""
        return self._rises[0][0] if self._rises else None

    def protection_ends_s(self, now_s: float, min_run_s: float) -> float | None:
        """Return when the next job that has just started may be stopped."""
        ends_s = self._table.started_s[: len(self._entries)] + min_run_s
        later = ends_s[ends_s > now_s]
        return float(later.min()) if later.size else None

    def _set_rank(self, entry: QueuedJob, ran_s: float, now_s: float) -> None:
        self._table.rank[entry.slot] = self._order.rank(entry.job, ran_s)
        rises_s = self._order.rank_rises_after_s(entry.job, ran_s)
        if rises_s is not None:
            rise = now_s + rises_s, entry.job.serial, entry.started_s, entry
            heappush(self._rises, rise)

    def _raise_ranks(self, now_s: float) -> None:
        while self._rises and self._rises[0][0] <= now_s:
            at_s, _, started_s, entry = heappop(self._rises)
            if entry.slot >= 0 and entry.started_s == started_s:
                # A little more than the step, or rounding would ask for the same step again.
                ran_s = entry.ran_s + at_s - started_s + _PAST_THE_STEP_S
                self._set_rank(entry, ran_s, at_s + _PAST_THE_STEP_S)

    def _ran_s(self, now_s: float) -> NDArray[np.float64]:
        return now_s - self._table.started_s[: len(self._entries)]

    def _ranks(self, now_s: float) -> NDArray[np.float64]:
        self._raise_ranks(now_s)
        ranks = self._table.rank[: len(self._entries)]
        slope = self._order.rank_slope
        return ranks if slope == 0.0 else np.maximum(ranks + slope * self._ran_s(now_s), 0.0)

    def deserving(self, now_s: float) -> Deserving:
        """Return what running jobs hold, by falling rank."""
        falling = -self._ranks(now_s)
        order = np.argsort(falling, kind="stable")
        return Deserving(
            falling[order],
            np.cumsum(self._table.gpu_milli[order]),
            np.cumsum(self._table.cpu_milli[order]),
        )

    def less_deserving(
        self, rank: float, now_s: float, rule: Preemption, most: int
    ) -> tuple[list[QueuedJob], NDArray[np.float64]]:
        """Return running jobs of larger rank, at most so many, and what stopping each costs.

        The cost is in GPU seconds: work since the last checkpoint, and starting again.
        """
        ranks = self._ranks(now_s)
        protected = self._table.started_s[: len(self._entries)] + rule.min_run_s > now_s
        eligible = np.nonzero((ranks > rank) & ~protected)[0]
        worst = eligible[np.argsort(-ranks[eligible], kind="stable")][:most]
        entries = [self._entries[slot] for slot in worst.tolist()]
        confirmed = [entry.state is JobState.RUNNING for entry in entries]
        costs = self._lost_gpu_s(worst, now_s, rule.restart_s)
        return [e for e, ok in zip(entries, confirmed, strict=True) if ok], costs[confirmed]

    def _lost_gpu_s(
        self, slots: NDArray[np.int64], now_s: float, restart_s: float
    ) -> NDArray[np.float64]:
        table = self._table
        return stopping_gpu_s(
            now_s - table.started_s[slots],
            table.checkpoint_s[slots],
            table.gpu_milli[slots],
            restart_s,
        )

    def soonest(self, now_s: float, most: int) -> tuple[Table, NDArray[np.float64]]:
        """Return the slots of those expected to end first and when, soonest first.

        They are as many as asked for and those that end together with the last of them.
        """
        count = len(self._entries)
        ran_s, estimated_s = self._ran_s(now_s), self._table.left_s[:count]
        overdue_end_s = now_s + OVERDUE_SHARE * ran_s + 1.0
        estimated_end_s = self._table.started_s[:count] + estimated_s
        ends_s = np.where(estimated_s > ran_s, estimated_end_s, overdue_end_s)
        slots = np.arange(count)
        if most < count:
            slots = np.nonzero(ends_s <= np.partition(ends_s, most - 1)[most - 1])[0]
        slots = slots[np.argsort(ends_s[slots], kind="stable")]
        return slots, ends_s[slots]

    def expected_end_s(self, entry: QueuedJob, now_s: float) -> float:
        """Return when a running job is expected to end."""
        ran_s = now_s - entry.started_s
        estimated_s = float(self._table.left_s[entry.slot])
        if estimated_s > ran_s:
            return entry.started_s + estimated_s
        return now_s + OVERDUE_SHARE * ran_s + 1.0

    def on_machine(self, number: int) -> list[QueuedJob]:
        """Return the jobs that hold something on a machine."""
        return [
            entry
            for entry in self
            if entry.rows is not None and (entry.rows[:, AT_MACHINE] == number).any()
        ]


def _length_s(entry: QueuedJob) -> float:
    """Return the estimated length of the attempt that begins; estimates are for full gangs."""
    assert entry.placement is not None
    return entry.left_s() / gang_ratio(entry.job.request, entry.placement)


def stopping_gpu_s(
    ran_s: NDArray[np.float64],
    checkpoint_s: NDArray[np.float64],
    gpu_milli: NDArray[np.int64],
    restart_s: float,
) -> NDArray[np.float64]:
    """Return what stopping jobs costs: work since the last checkpoint, and a restart."""
    since_s = np.zeros(len(ran_s))
    np.mod(ran_s, checkpoint_s, out=since_s, where=checkpoint_s > 0)
    return (since_s + restart_s) * np.maximum(gpu_milli, 1) / MILLI
