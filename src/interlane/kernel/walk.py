"""The first phase: start whoever may start, in order, as far as the discipline lets them pass.

*Greedy* lets everybody pass who fits, *strict* nobody; *EASY* promises the head a place and
lets those pass who do not delay it (``backfill``).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from interlane.kernel.backfill import Backfill
from interlane.kernel.placing import Placing
from interlane.kernel.queue import QueuedJob
from interlane.kernel.reservation import Reservation
from interlane.kernel.state import State
from interlane.model import Action
from interlane.policy.policy import Discipline
from interlane.tables import NOBODY, SAME_GROUP


class Walk:
    """A walk over the queue; the discipline says what becomes of those who do not fit."""

    def __init__(self, state: State, placing: Placing) -> None:
        self._state = state
        self._placing = placing

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Start whoever may start."""
        raise NotImplementedError

    def _start_heads(self, now_s: float, actions: list[Action]) -> QueuedJob | None:
        """Start the head of the queue while it fits; return the head that does not."""
        queue, view = self._state.queue, self._state.view
        while queue:
            number, table, _ = self._placing.take_next(queue, now_s, only_with_room=False)
            entry = queue.head(number, now_s)
            if table is not None:
                self._placing.start_on(entry, table, now_s, actions)
                continue
            part = entry.shape.parts[0]
            if view.sums[part.profile] < part.least:
                return entry
            if not self._placing.try_start(entry, now_s, actions):
                return entry
        return None


class GreedyWalk(Walk):
    """Whoever fits starts, in order."""

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Start all who fit; a group whose head finds no place is barred for this epoch."""
        queue, placing = self._state.queue, self._placing
        while queue:
            number, table, rest = placing.take_next(queue, now_s, only_with_room=True)
            if number < 0:
                return
            entry = queue.head(number, now_s)
            if table is not None:
                placing.start_on(entry, table, now_s, actions)
                if rest == NOBODY or (rest == SAME_GROUP and not queue.group(number).size):
                    return
            elif not placing.try_start(entry, now_s, actions):
                queue.bar(number, self._state.epoch)


class StrictWalk(Walk):
    """Nobody passes the head of the queue."""

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Start heads until one does not fit."""
        self._state.blocking = self._start_heads(now_s, actions)


class Easy(Walk):
    """The head gets a reservation; others may pass unless they would delay it."""

    def __init__(self, state: State, placing: Placing) -> None:
        super().__init__(state, placing)
        self._backfill = Backfill(state, placing)
        self._head: QueuedJob | None = None
        self._since_s = 0.0
        """Since when the head has been the head, and does not fit."""

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Start heads until one does not fit, promise it a place and fill in around it."""
        state, head = self._state, self._start_heads(now_s, actions)
        if head is not self._head:
            self._head, self._since_s = head, now_s
        if head is None:
            return
        if state.promise is None or not state.promise.serves(head, now_s):
            state.promise = Reservation(head, state.running, state.ledger, now_s)
            state.epoch += 1
        waited_s = now_s - self._since_s
        state.promise.trusts_estimates = waited_s < state.policy.passed_s_max
        self._backfill(state.promise, now_s, actions)


WALKS: Final[Mapping[Discipline, type[Walk]]] = MappingProxyType(
    {Discipline.SKIP: GreedyWalk, Discipline.STRICT: StrictWalk, Discipline.EASY: Easy}
)
