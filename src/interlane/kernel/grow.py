"""The last phase: elastic jobs grow into what nobody who waits can use."""

from interlane.kernel.growth import Want
from interlane.kernel.placing import Placing
from interlane.kernel.reservation import Reservation
from interlane.kernel.state import State
from interlane.model import Action, Grow, Placement
from interlane.policy.policy import Discipline
from interlane.tables import AT_TASK, Table


class GrowJobs:
    """Gives running jobs more of what they asked for."""

    def __init__(self, state: State, placing: Placing) -> None:
        self._state = state
        self._placing = placing
        self._waits_for_all = state.policy.discipline is Discipline.STRICT
        """Whether nobody grows while anybody waits."""

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Let jobs grow while there is room; what was promised to the head is left alone."""
        state, queue = self._state, self._state.growth.queue
        if not self._may_grow():
            return
        queue.refresh(now_s)
        promise = state.promise if state.queue else None
        while queue:
            if promise is None:
                number, table, _ = self._placing.take_next(queue, now_s, only_with_room=True)
            else:
                number, table = self._placing.pick(queue, now_s, only_with_room=True), None
            if number < 0:
                break
            want = queue.head(number, now_s)
            assert isinstance(want, Want)
            if table is None:
                table = self._hold_place(want, promise, now_s)
            if table is None:
                queue.bar(number, state.epoch)
            else:
                self._grow(want, table, now_s, actions)
        state.growth.done_in_epoch = state.epoch

    def _may_grow(self) -> bool:
        """Return whether somebody might grow now: room is grown into after all who wait."""
        state = self._state
        if state.stopping or state.growth.done_in_epoch == state.epoch:
            return False
        return not (self._waits_for_all and state.queue)

    def _hold_place(
        self, want: Want, promise: Reservation | None, now_s: float
    ) -> Table | None:
        """Hold a place for what a job lacks, the long way; None if there is none."""
        running = self._state.running
        is_short = promise is None or running.expected_end_s(want.of, now_s) <= promise.at_s
        if promise is None:
            answer = self._placing.place(want)
            placement = answer if isinstance(answer, Placement) else None
        else:
            placement = self._placing.place_beside(want, promise, is_short=is_short)
        table = None if placement is None else self._placing.hold(want, placement)
        if table is not None and promise is not None and not is_short:
            promise.take(table)
        return table

    def _grow(self, want: Want, table: Table, now_s: float, actions: list[Action]) -> None:
        """Have a job grow into a place that is held."""
        state, entry = self._state, want.of
        table[:, AT_TASK] = want.task
        more = state.ledger.to_placement(table)
        state.growth.withdraw(entry, now_s)
        state.hold_more(entry, more, table)
        actions.append(Grow(entry.job.id, more))
