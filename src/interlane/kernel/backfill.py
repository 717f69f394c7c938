"""Backfilling: start jobs behind a head that waits, unless they would delay it."""

from typing import Final

from interlane.kernel import compiled
from interlane.kernel.placing import Placing
from interlane.kernel.reservation import Reservation
from interlane.kernel.state import State
from interlane.model import Action

DEPTH: Final = 100
"""Jobs of one shape that a pass looks at, as cluster managers bound it too."""


class Backfill:
    """Fills in around what is promised to the head."""

    def __init__(self, state: State, placing: Placing) -> None:
        self._state = state
        self._placing = placing

    def __call__(self, promise: Reservation, now_s: float, actions: list[Action]) -> None:
        """Start whoever fits and does not delay the head.

        A group from which nobody may pass stays barred until something becomes free, the
        promise changes or somebody joins it: time alone only shortens what may pass.
        """
        state, queue = self._state, self._state.queue
        while len(queue) > 1:
            self._bar_who_delays(promise, now_s)
            number = self._placing.pick(queue, now_s, only_with_room=True)
            if number < 0:
                return
            if not self._start_from(number, promise, now_s, actions):
                queue.bar(number, state.epoch)

    def _bar_who_delays(self, promise: Reservation, now_s: float) -> None:
        """Bar all groups at once from which nobody may pass, by the room of the last pick."""
        queue, view, ledger = self._state.queue, self._state.view, self._state.ledger
        compiled.bar_who_delays(
            queue.tables, view.tables, ledger.asks, promise.reserved, promise.spare,
            promise.at_s - now_s, self._state.epoch,
        )  # fmt: skip

    def _start_from(
        self, number: int, promise: Reservation, now_s: float, actions: list[Action]
    ) -> bool:
        """Start the first job of a group that may pass; return whether there was one.

        Whether a long job may pass depends on its shape alone, so one is tried for all.
        """
        long_refused = False
        for entry in self._state.queue.group(number).line.in_order(now_s, DEPTH):
            is_short = promise.is_short(entry, now_s)
            if entry is promise.head or (long_refused and not is_short):
                continue
            place = self._placing.place_beside(entry, promise, is_short=is_short)
            if place is not None and self._placing.start_at(entry, place, now_s, actions):
                assert entry.rows is not None
                if not is_short:
                    promise.take(entry.rows)
                return True
            if is_short:
                return False
            long_refused = True
        return False
