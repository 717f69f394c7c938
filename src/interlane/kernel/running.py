"""Who holds capacity: running, starting and stopping jobs, in the order of their slots."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger, Table
from interlane.kernel.lifecycle import JobState
from interlane.kernel.queue import Entry
from interlane.kernel.view import Part
from interlane.model import MILLI
from interlane.policy.base import Order
from interlane.policy.preempt import Preemption
from interlane.policy.victims import HELD_BY, HELD_MACHINE, find_victims

OVERDUE_SHARE: Final = 0.5
"""A job past its guess is expected to run on for this share of what it has run."""

UNGUESSED_S: Final = 86_400.0
"""A job without any guess is expected to run for a day."""


def left_s(entry: Entry) -> float:
    """Return how much longer a job is guessed to run than it did in earlier attempts."""
    guess_s = entry.job.duration_s_guess
    return max((UNGUESSED_S if guess_s is None else guess_s) - entry.ran_s, 0.0)


class Running:
    """Jobs that hold capacity, and when they are expected to end."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._unused: list[int] = []
        self._started_s = np.zeros(64)
        self._left_s = np.zeros(64)
        """Guessed length less what earlier attempts ran; by slot, like the start."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def add(self, entry: Entry) -> None:
        """Note that a job now holds capacity."""
        slot = self._unused.pop() if self._unused else len(self._entries)
        if slot == len(self._started_s):
            self._started_s = np.concatenate([self._started_s, np.zeros(slot)])
            self._left_s = np.concatenate([self._left_s, np.zeros(slot)])
        entry.slot = slot
        self._entries[slot] = entry
        self._started_s[slot] = entry.started_s
        self._left_s[slot] = left_s(entry)

    def remove(self, entry: Entry) -> None:
        """Note that a job holds nothing any more."""
        del self._entries[entry.slot]
        self._unused.append(entry.slot)
        entry.slot = -1

    def by_expected_end(self, now_s: float) -> tuple[list[Entry], NDArray[np.float64]]:
        """Return the jobs and their expected ends, soonest first."""
        slots = np.fromiter(self._entries, np.int64, len(self._entries))
        started_s, guessed_s = self._started_s[slots], self._left_s[slots]
        ran_s = now_s - started_s
        overdue_end_s = now_s + OVERDUE_SHARE * ran_s + 1.0
        ends_s = np.where(guessed_s > ran_s, started_s + guessed_s, overdue_end_s)
        order = np.lexsort((slots, ends_s))
        return [self._entries[slot] for slot in slots[order].tolist()], ends_s[order]

    def expected_end_s(self, entry: Entry, now_s: float) -> float:
        """Return when a running job is expected to end."""
        ran_s = now_s - entry.started_s
        guessed_s = left_s(entry)
        if guessed_s > ran_s:
            return entry.started_s + guessed_s
        return now_s + OVERDUE_SHARE * ran_s + 1.0

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
    eligible: list[Entry], cost: NDArray[np.float64], machines: int
) -> tuple[Table, Table, Table, Table, Table]:
    """Return what the eligible jobs hold, with its sortings by machine and by job."""
    tables = [entry.rows for entry in eligible if entry.rows is not None]
    held = np.concatenate(tables)
    held[:, HELD_BY] = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    by_machine = np.lexsort((held[:, HELD_BY], cost[held[:, HELD_BY]], held[:, HELD_MACHINE]))
    starts = np.searchsorted(held[by_machine, HELD_MACHINE], np.arange(machines + 1))
    first = np.searchsorted(held[:, HELD_BY], np.arange(len(tables) + 1))
    return held, by_machine, starts, np.arange(len(held)), first
