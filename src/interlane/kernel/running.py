"""Who holds capacity: running, starting and stopping jobs, in the order of their slots."""

from collections.abc import Iterator

import numpy as np

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger, Table
from interlane.kernel.lifecycle import JobState
from interlane.kernel.queue import Entry
from interlane.kernel.view import Part
from interlane.model import MILLI
from interlane.policy.base import Order
from interlane.policy.preempt import Preemption
from interlane.policy.victims import HELD_BY, HELD_MACHINE, find_victims


class Running:
    """Jobs that hold capacity."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._slots = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def add(self, entry: Entry) -> None:
        """Note that a job now holds capacity."""
        entry.slot = self._slots
        self._slots += 1
        self._entries[entry.slot] = entry

    def remove(self, entry: Entry) -> None:
        """Note that a job holds nothing any more."""
        del self._entries[entry.slot]
        entry.slot = -1

    def on_machine(self, number: int) -> list[Entry]:
        """Return the jobs that hold something on a machine."""
        return [
            entry
            for entry in self
            if entry.rows is not None and (entry.rows[:, compiled.AT_MACHINE] == number).any()
        ]


def lost_gpu_s(entry: Entry, now_s: float, restart_s: float) -> float:
    """Return the GPU seconds that stopping a job now would throw away."""
    since_s = now_s - entry.started_s
    if entry.job.checkpoint_s > 0:
        since_s %= entry.job.checkpoint_s
    else:
        since_s = 0.0
    return (since_s + restart_s) * max(entry.job.request.gpu_milli, 1) / MILLI


def victims_for(
    waiting: Entry,
    running: Running,
    ledger: Ledger,
    order: Order,
    rule: Preemption,
    now_s: float,
) -> list[Entry]:
    """Return the running jobs whose end would make room, the least lost work; or none."""
    rank = order.rank(waiting.job, waiting.ran_s)
    eligible = [
        entry
        for entry in running
        if entry.state is JobState.RUNNING
        and now_s - entry.started_s >= rule.min_run_s
        and order.rank(entry.job, entry.ran_so_far_s(now_s)) > rank
    ]
    if not eligible:
        return []
    part = _tightest_part(waiting, ledger)
    cost = np.array([lost_gpu_s(entry, now_s, rule.restart_s) for entry in eligible])
    held, by_machine, starts, by_holder, first = _holdings(eligible, cost, len(ledger.cluster))
    chosen = find_victims(
        ledger.free, ledger.asks, part.profile, part.least, held, by_machine,
        starts, by_holder, first, cost,
    )  # fmt: skip
    return [entry for entry, stop in zip(eligible, chosen.tolist(), strict=True) if stop]


def _tightest_part(waiting: Entry, ledger: Ledger) -> Part:
    """Return the task that lacks the most room; the others follow when it has been helped."""
    return max(
        waiting.shape.parts,
        key=lambda part: (
            part.least / (1 + int(compiled.room_on(ledger.free, ledger.asks, part.profile)))
        ),
    )


def _holdings(
    eligible: list[Entry], cost: "np.ndarray[tuple[int], np.dtype[np.float64]]", machines: int
) -> tuple[Table, Table, Table, Table, Table]:
    """Return what the eligible jobs hold, with its sortings by machine and by job."""
    tables = [entry.rows for entry in eligible if entry.rows is not None]
    held = np.concatenate(tables)
    held[:, HELD_BY] = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    by_machine = np.lexsort((held[:, HELD_BY], cost[held[:, HELD_BY]], held[:, HELD_MACHINE]))
    starts = np.searchsorted(held[by_machine, HELD_MACHINE], np.arange(machines + 1))
    first = np.searchsorted(held[:, HELD_BY], np.arange(len(tables) + 1))
    return held, by_machine, starts, np.arange(len(held)), first
