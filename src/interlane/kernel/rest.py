"""Decide until at rest: the one loop that every engine runs after it has told what happened."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from interlane.model import Action, Event, Refuse, Started

ROUNDS_MAX: Final = 100_000
"""A moment that needs more decisions than this is an endless loop: a fault of ours."""


class Decides(Protocol):
    """What decides: a scheduler, or whatever wraps one to watch it or to teach it."""

    def learn(self, event: Event, now_s: float) -> None:
        """Take one event in, without deciding anything."""
        ...

    def decide(self, now_s: float) -> tuple[Action, ...]:
        """Return what should be done now."""
        ...


class Wrapper:
    """Decides what another decides; learners and watchers change what that one is told."""

    def __init__(self, inner: Decides) -> None:
        self.inner = inner

    def learn(self, event: Event, now_s: float) -> None:
        """Pass one event on."""
        self.inner.learn(event, now_s)

    def decide(self, now_s: float) -> tuple[Action, ...]:
        """Return what the other decides."""
        return self.inner.decide(now_s)


def decide_until_rest(
    decider: Decides,
    now_s: float,
    carry_out: Callable[[tuple[Action, ...]], Iterable[Event]],
    *,
    rounds_max: int = ROUNDS_MAX,
) -> int:
    """Have everything decided that can be at one moment; return in how many rounds.

    ``carry_out`` does what was decided and yields what came of it at once; whatever comes
    later is told later.  Another round follows if that may let others start: if a job was
    refused, or if more happened than that jobs began as they were told to.
    """
    for rounds in range(1, rounds_max + 1):
        actions = decider.decide(now_s)
        again = Refuse in map(type, actions)
        for event in carry_out(actions):
            decider.learn(event, now_s)
            again = again or type(event) is not Started
        if not again:
            return rounds
    raise AssertionError(f"The scheduler does not come to rest at {now_s} s.")
