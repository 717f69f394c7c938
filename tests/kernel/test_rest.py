"""Decide until at rest: one loop, one rule for another round, and an end to endless ones."""

from collections.abc import Callable, Iterable

import pytest

from interlane.kernel.rest import Wrapper, decide_until_rest
from interlane.model import (
    Action,
    Cancelled,
    Event,
    Finished,
    JobId,
    Placement,
    Refusal,
    Refuse,
    Requeue,
    Start,
    Started,
    Submitted,
    Tier,
    Wake,
)
from interlane.testing.build import job, make

A = JobId("a")
PLACE = Placement(())
REFUSE = Refuse(A, Refusal(Tier.INVALID, "It cannot.", "Do not."))


class Scripted:
    """Decides what it was told to, round by round, and notes what it learns."""

    def __init__(self, *rounds: tuple[Action, ...]) -> None:
        self._rounds = iter(rounds)
        self.learned: list[Event] = []

    def learn(self, event: Event, now_s: float) -> None:
        self.learned.append(event)

    def decide(self, now_s: float) -> tuple[Action, ...]:
        return next(self._rounds, ())


def answers(*events: Event) -> Callable[[tuple[Action, ...]], Iterable[Event]]:
    """Return an engine that answers the first decision with these events."""
    told = iter([events])
    return lambda actions: next(told, ())


@pytest.mark.parametrize(
    ("action", "at_once", "rounds"),
    [
        (Start(A, PLACE), (), 1),
        (Start(A, PLACE), (Started(A, PLACE),), 1),
        (Wake(3.0), (), 1),
        (Requeue(A, "gone"), (), 1),
        (Requeue(A, "gone"), (Cancelled(A),), 2),
        (Start(A, PLACE), (Started(A, PLACE), Finished(A)), 2),
        (REFUSE, (), 2),
    ],
    ids=repr,
)
def test_another_round_follows_only_if_somebody_else_may_start_now(
    action: Action, at_once: tuple[Event, ...], rounds: int
) -> None:
    decider = Scripted((action,))

    assert decide_until_rest(decider, 0.0, answers(*at_once)) == rounds
    assert decider.learned == list(at_once)


def test_what_comes_of_an_action_is_learned_before_the_next_decision() -> None:
    scheduler = make(gpus=1)
    first, second = job("a", gpus=1), job("b", gpus=1)
    for one in (first, second):
        scheduler.learn(Submitted(one), 0.0)
    begun: list[JobId] = []

    def over_at_once(actions: tuple[Action, ...]) -> Iterable[Event]:
        for action in actions:
            assert isinstance(action, Start)
            begun.append(action.job_id)
            yield Started(action.job_id, action.placement)
            yield Finished(action.job_id)

    decide_until_rest(scheduler, 0.0, over_at_once)

    assert begun == ["a", "b"]


def test_a_scheduler_that_never_rests_is_a_fault() -> None:
    restless = Scripted(*[(REFUSE,)] * 6)

    with pytest.raises(AssertionError, match=r"does not come to rest at 7\.0 s"):
        decide_until_rest(restless, 7.0, answers(), rounds_max=5)


def test_a_wrapper_passes_everything_on() -> None:
    inner = Scripted((Wake(1.0),))
    wrapper = Wrapper(inner)

    wrapper.learn(Finished(A), 0.0)

    assert inner.learned == [Finished(A)]
    assert wrapper.decide(0.0) == (Wake(1.0),)
