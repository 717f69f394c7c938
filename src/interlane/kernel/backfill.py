"""Backfilling: start jobs behind a head that waits, unless they would delay it."""

from typing import Final, NamedTuple

from interlane import tables
from interlane.kernel import compiled
from interlane.kernel.placing import Placing
from interlane.kernel.queue import QueuedJob, at_now
from interlane.kernel.reservation import Reservation
from interlane.kernel.state import State
from interlane.model import Action, Placement

DEPTH: Final = 100
"""Jobs of one shape that a pass looks at, as cluster managers bound it too."""

_Rank = tuple[float, float, int]
"""Where a job stands in the queue: the rank of its group, then its own key."""


class _Passer(NamedTuple):
    """A job that may pass the head, and where it would go."""

    entry: QueuedJob
    place: Placement
    is_short: bool


class Backfill:
    """Fills in around what is promised to the head."""

    def __init__(self, state: State, placing: Placing) -> None:
        self._state = state
        self._placing = placing

    def __call__(self, promise: Reservation, now_s: float, actions: list[Action]) -> None:
        """Start whoever fits and does not delay the head, in the queue's order.

        A group from which nobody may pass stays barred until something becomes free, the
        promise changes or somebody joins it: time alone only shortens what may pass.
        """
        state, queue = self._state, self._state.queue
        while len(queue) > 1:
            self._bar_who_delays(promise, now_s)
            passer = self._first_passer(promise, now_s)
            if passer is None:
                return
            entry, place, is_short = passer
            assert entry.group is not None
            number = entry.group.number
            if not self._placing.start_at(entry, place, now_s, actions):
                queue.bar(number, state.epoch)
            elif not is_short:
                assert entry.rows is not None
                promise.take(entry.rows)

    def _bar_who_delays(self, promise: Reservation, now_s: float) -> None:
        """Bar all groups at once from which nobody may pass, by the room of the last pick."""
        queue, view, ledger = self._state.queue, self._state.view, self._state.ledger
        compiled.bar_who_delays(
            queue.tables, view.tables, ledger.asks, promise.reserved, promise.spare,
            promise.left_s(now_s), self._state.epoch,
        )  # fmt: skip

    def _first_passer(self, promise: Reservation, now_s: float) -> _Passer | None:
        """Return the first of all waiting jobs that may pass.

        Groups come by their first jobs.  If that one may not pass and a later one of its group
        may, jobs of other groups can stand between the two, and are looked at before.
        """
        queue, epoch = self._state.queue, self._state.epoch
        best: _Passer | None = None
        aside: list[int] = []
        while (number := self._placing.pick(queue, now_s, only_with_room=True)) >= 0:
            head = queue.head(number, now_s)
            if best is not None and self._rank(best.entry, now_s) < self._rank(head, now_s):
                break
            found = self._passer_of(number, promise, now_s)
            if found is not None and found.entry is head:
                best = found
                break
            queue.bar(number, epoch)
            if found is None:
                continue
            aside.append(number)
            if best is None or self._rank(found.entry, now_s) < self._rank(best.entry, now_s):
                best = found
        for number in aside:
            queue.unbar(number)
        return best

    def _rank(self, entry: QueuedJob, now_s: float) -> _Rank:
        assert entry.group is not None
        rank = float(self._state.queue.keys[entry.group.number, tables.KEY_RANK])
        return (rank, *at_now(entry, now_s))

    def _passer_of(self, number: int, promise: Reservation, now_s: float) -> _Passer | None:
        """Return the first job of a group that may pass.

        Whether a long job may pass depends on its shape alone, so one is tried for all.
        """
        long_refused = False
        for entry in self._state.queue.group(number).line.in_order(now_s, DEPTH):
            is_short = promise.is_short(entry, now_s)
            if entry is promise.head or (long_refused and not is_short):
                continue
            place = self._placing.place_beside(entry, promise, is_short=is_short)
            if place is not None:
                return _Passer(entry, place, is_short)
            if is_short:
                return None
            long_refused = True
        return None
