"""Who holds capacity: running, starting and stopping jobs, in the order of their slots."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger, Table
from interlane.kernel.lifecycle import JobState
from interlane.kernel.queue import QueuedJob
from interlane.kernel.view import ShapePart
from interlane.model import MILLI, JobId, gang_ratio
from interlane.policy import rows
from interlane.policy.base import Order
from interlane.policy.preempt import Preemption
from interlane.policy.victims import HELD_BY, HELD_MACHINE, find_victims

OVERDUE_SHARE: Final = 0.5
"""A job past its estimate is expected to run on for this share of what it has run."""

FIRST_CANDIDATES: Final = 256
"""How many of the least deserving jobs are looked at before more of them are."""

DOMAINS_TRIED: Final = 16
"""In how many domains room is made, at most, for a job that must be in one."""

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
        if self._ranked:
            table.checkpoint_s[slot] = entry.job.checkpoint_s
            table.gpu_milli[slot] = request.gpu_milli
            table.cpu_milli[slot] = request.cpu_milli
            self._set_rank(entry, entry.ran_s, entry.started_s)

    def note_growth(self, entry: QueuedJob, now_s: float) -> None:
        """Expect a job to end sooner that has got the instances it was growing by."""
        if not self._tracked:
            return
        assert entry.rows is not None
        instances = entry.rows[:, compiled.AT_INSTANCES]
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
        return _stopping_gpu_s(
            now_s - table.started_s[slots],
            table.checkpoint_s[slots],
            table.gpu_milli[slots],
            restart_s,
        )

    def by_expected_end(self, now_s: float) -> tuple[list[int], NDArray[np.float64]]:
        """Return the slots of the jobs and their expected ends, soonest first."""
        count = len(self._entries)
        ran_s, estimated_s = self._ran_s(now_s), self._table.left_s[:count]
        overdue_end_s = now_s + OVERDUE_SHARE * ran_s + 1.0
        estimated_end_s = self._table.started_s[:count] + estimated_s
        ends_s = np.where(estimated_s > ran_s, estimated_end_s, overdue_end_s)
        order = np.argsort(ends_s, kind="stable")
        return order.tolist(), ends_s[order]

    def held_by(self, slots: Iterable[int]) -> list[Table]:
        """Return what the jobs in these slots hold."""
        held = [self._entries[slot].rows for slot in slots]
        return [table for table in held if table is not None]

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
            if entry.rows is not None and (entry.rows[:, compiled.AT_MACHINE] == number).any()
        ]


def _length_s(entry: QueuedJob) -> float:
    """Return the estimated length of the attempt that begins; estimates are for full gangs."""
    assert entry.placement is not None
    return entry.left_s() / gang_ratio(entry.job.request, entry.placement)


def victims_for(
    waiting: QueuedJob,
    running: Running,
    ledger: Ledger,
    order: Order,
    rule: Preemption,
    now_s: float,
) -> list[QueuedJob]:
    """Return the running jobs whose end would make room, cheapest first; or none.

    Looks at the least deserving jobs first, and at more of them if those do not suffice.
    Whoever would be ahead in the queue again is left alone: it would take its place back.
    """
    rank = order.rank(waiting.job, waiting.ran_s)
    most = FIRST_CANDIDATES
    while True:
        found, cost = running.less_deserving(rank, now_s, rule, most)
        behind = [_would_wait_behind(entry, waiting, order, now_s) for entry in found]
        eligible = [entry for entry, ok in zip(found, behind, strict=True) if ok]
        stopped = _cheapest_victims(waiting, eligible, cost[behind], ledger)
        if stopped or len(found) < most:
            return stopped
        most *= 4


def _would_wait_behind(
    entry: QueuedJob, waiting: QueuedJob, order: Order, now_s: float
) -> bool:
    value, slope = order.key(entry.job, entry.ran_so_far_s(now_s))
    ahead = waiting.key[0] + waiting.key[1] * now_s, waiting.job.serial
    return (value + slope * now_s, entry.job.serial) > ahead


def allocators_for(
    waiting: QueuedJob,
    borrowers: dict[JobId, QueuedJob],
    ledger: Ledger,
    rule: Preemption,
    now_s: float,
) -> tuple[list[QueuedJob], bool]:
    """Return the borrowers whose end would make room, cheapest first; or none.

    The latest to borrow are looked at first: they have the least to lose.  Also returns
    whether none was left out because it is still starting or protected.
    """
    latest = reversed(borrowers.values())
    found: list[QueuedJob] = []
    most = FIRST_CANDIDATES
    while True:
        more = list(islice(latest, most))
        found += [
            entry
            for entry in more
            if entry.state is JobState.RUNNING and entry.started_s + rule.min_run_s <= now_s
        ]
        cost = _stopping_gpu_s(
            np.array([now_s - entry.started_s for entry in found]),
            np.array([entry.job.checkpoint_s for entry in found]),
            np.array([entry.job.request.gpu_milli for entry in found]),
            rule.restart_s,
        )
        stopped = _cheapest_victims(waiting, found, cost, ledger) if found else []
        if stopped or len(more) < most:
            return stopped, len(found) == len(borrowers)
        most *= 4


def _stopping_gpu_s(
    ran_s: NDArray[np.float64],
    checkpoint_s: NDArray[np.float64],
    gpu_milli: NDArray[np.int64],
    restart_s: float,
) -> NDArray[np.float64]:
    """Return what stopping jobs costs: work since the last checkpoint, and a restart."""
    since_s = np.zeros(len(ran_s))
    np.mod(ran_s, checkpoint_s, out=since_s, where=checkpoint_s > 0)
    return (since_s + restart_s) * np.maximum(gpu_milli, 1) / MILLI


def _cheapest_victims(
    waiting: QueuedJob, eligible: list[QueuedJob], cost: NDArray[np.float64], ledger: Ledger
) -> list[QueuedJob]:
    """Return whom to stop so that the job fits, in one domain if it must; none if in vain."""
    same = waiting.shape.closeness.same
    if same is None:
        return _victims_on(ledger.free, waiting, eligible, cost, ledger)
    found = []
    domains = ledger.domains(same)
    room = compiled.room_by(
        ledger.free, ledger.asks, waiting.shape.parts[0].profile, domains.of, len(domains.names)
    )
    # The roomiest domains need the fewest victims; not all are tried where there are many.
    for domain in np.argsort(-room, kind="stable")[:DOMAINS_TRIED].tolist():
        free = ledger.free.copy()
        free[domains.outside(domain), rows.UP] = 0
        victims = _victims_on(free, waiting, eligible, cost, ledger)
        if victims:
            found.append((sum(cost[eligible.index(one)] for one in victims), victims))
    return min(found, key=lambda one: one[0])[1] if found else []


def _victims_on(
    machines: Table,
    waiting: QueuedJob,
    eligible: list[QueuedJob],
    cost: NDArray[np.float64],
    ledger: Ledger,
) -> list[QueuedJob]:
    """Return whom to stop so that every task fits beside those before it; none if in vain."""
    free = machines if len(waiting.shape.parts) == 1 else machines.copy()
    stopped: list[tuple[float, int]] = []
    left = list(range(len(eligible)))
    for part in waiting.shape.parts:
        if int(compiled.room_on(free, ledger.asks, part.profile)) < part.least:
            if not left:
                return []
            some = [eligible[at] for at in left]
            holdings = _holdings(some, cost[left], ledger.height)
            chosen = find_victims(
                free, ledger.asks, part.profile, part.least, *holdings, cost[left]
            )
            if not chosen.any():
                return []
            newly = [at for at, stop in zip(left, chosen.tolist(), strict=True) if stop]
            stopped += [(float(cost[at]), at) for at in newly]
            left = [at for at in left if at not in set(newly)]
        else:
            newly = []
        if free is not machines:
            _rehearse(free, part, [eligible[at] for at in newly], ledger)
    return [eligible[at] for _, at in sorted(stopped)]


def _rehearse(free: Table, part: ShapePart, gone: list[QueuedJob], ledger: Ledger) -> None:
    """Let jobs go and seat a task, on a private copy of the state."""
    for entry in gone:
        assert entry.rows is not None
        compiled.change_rows(free, ledger.asks, entry.rows, 0, len(entry.rows), -1)
    nowhere, used = np.zeros((2, len(free)), np.bool_)
    compiled.seat(free, ledger.asks, part.profile, part.least, nowhere, used)


def _holdings(
    eligible: list[QueuedJob], cost: NDArray[np.float64], machines: int
) -> tuple[Table, Table, Table, Table, Table]:
    """Return what the eligible jobs hold, with its sortings by machine and by job."""
    tables = [entry.rows for entry in eligible if entry.rows is not None]
    held = np.concatenate(tables)
    held[:, HELD_BY] = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    by_machine = np.lexsort((held[:, HELD_BY], cost[held[:, HELD_BY]], held[:, HELD_MACHINE]))
    starts = np.searchsorted(held[by_machine, HELD_MACHINE], np.arange(machines + 1))
    first = np.searchsorted(held[:, HELD_BY], np.arange(len(tables) + 1))
    return held, by_machine, starts, np.arange(len(held)), first
