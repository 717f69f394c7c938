"""Whom to stop so that a waiting job fits: those whose end costs the least, if it helps."""

from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger
from interlane.kernel.queue import QueuedJob
from interlane.kernel.running import Running, stopping_gpu_s
from interlane.kernel.shapes import ShapePart
from interlane.model import JobId
from interlane.model.lifecycle import JobState
from interlane.policy.base import Order
from interlane.policy.preempt import Preemption
from interlane.policy.rows import room_on
from interlane.policy.victims import find_victims
from interlane.tables import AT_MACHINE, HELD_BY, UP, Holdings, Table
from interlane.tables.compiled import change_rows

CLAIMS_MAX: Final = 2
"""Places that may be made for a job in vain: room by count is not always a placement."""

FIRST_CANDIDATES: Final = 256
"""How many of the least deserving jobs are looked at before more of them are."""

DOMAINS_TRIED: Final = 16
"""In how many domains room is made, at most, for a job that must be in one."""


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
        cost = stopping_gpu_s(
            np.array([now_s - entry.started_s for entry in found]),
            np.array([entry.job.checkpoint_s for entry in found]),
            np.array([entry.job.request.gpu_milli for entry in found]),
            rule.restart_s,
        )
        stopped = _cheapest_victims(waiting, found, cost, ledger) if found else []
        if stopped or len(more) < most:
            return stopped, len(found) == len(borrowers)
        most *= 4


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
        free[domains.outside(domain), UP] = 0
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
        if int(room_on(free, ledger.asks, part.profile)) < part.least:
            if not left:
                return []
            some = [eligible[at] for at in left]
            holdings = _holdings(some, cost[left], ledger.height)
            chosen = find_victims(free, ledger.asks, part.profile, part.least, holdings)
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
        change_rows(free, ledger.asks, entry.rows, 0, len(entry.rows), -1)
    nowhere, used = np.zeros((2, len(free)), np.bool_)
    compiled.seat(free, ledger.asks, part.profile, part.least, nowhere, used)


def _holdings(eligible: list[QueuedJob], cost: NDArray[np.float64], machines: int) -> Holdings:
    """Return what the eligible jobs hold, with its sortings by machine and by job."""
    tables = [entry.rows for entry in eligible if entry.rows is not None]
    held = np.concatenate(tables)
    held[:, HELD_BY] = by = np.repeat(np.arange(len(tables)), [len(one) for one in tables])
    by_machine = np.lexsort((by, cost[by], held[:, AT_MACHINE]))
    starts = np.searchsorted(held[by_machine, AT_MACHINE], np.arange(machines + 1))
    first = np.searchsorted(by, np.arange(len(tables) + 1))
    return Holdings(held, by_machine, starts, first, cost)
