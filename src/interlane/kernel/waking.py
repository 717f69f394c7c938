"""When to decide again although nothing happens: a rank rises, a protection or a stage ends."""

from collections.abc import Callable

from interlane.kernel.state import State
from interlane.model import Action, Event, Ticked, Wake


class Waking:
    """Asks to be woken, once for each moment."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._wake_s: float | None = None
        """When the last ``Wake`` was asked for; None once it has come."""
        self.learn: dict[type[Event], Callable[..., None]] = {Ticked: self._ticked}
        """What to do about each kind of event."""

    def _ticked(self, event: Ticked, now_s: float) -> None:
        self._wake_s = None

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Ask to be woken at the next moment that may let a waiting job start."""
        state = self._state
        if not state.queue:
            return
        moments_s = [state.running.next_rise_s()]
        if state.staging is not None:
            moments_s.append(state.staging.next_s())
        min_run_s = state.policy.preemption.min_run_s
        if min_run_s > 0 and (state.policy.order.preempts or state.lending.borrowers):
            moments_s.append(state.running.protection_ends_s(now_s, min_run_s))
        wake_s = min((at_s for at_s in moments_s if at_s is not None), default=None)
        if wake_s is not None and wake_s != self._wake_s:
            self._wake_s = wake_s
            actions.append(Wake(wake_s))
