"""Steps of different GPUs are carried out at once."""

from threading import Barrier

import pytest

from interlane.mig.plan import Instance, PartitionPlan
from interlane.mig.transition.run import StepFailed
from interlane.mig.transition.steps import TransitionStep, Verb
from interlane.migctl.at_once import AtOnce
from interlane.model import InterlaneError

PATIENCE_S = 60.0


def make(gpu: str) -> TransitionStep:
    return TransitionStep(Verb.MAKE, gpu, "A30-24GB", Instance("1g.6gb", 0))


class Host:
    """Steps that end only when so many are under way."""

    def __init__(self, together: int) -> None:
        self._together = Barrier(together)

    def observe(self, expected: PartitionPlan) -> PartitionPlan:
        return expected

    def perform(self, step: TransitionStep) -> None:
        self._together.wait(PATIENCE_S)
        if step.gpu == "stubborn":
            raise StepFailed("it will not.")
        if step.gpu == "gone":
            raise InterlaneError("there is no such host.")


def test_steps_that_wait_for_each_other_end() -> None:
    body = AtOnce(Host(3))
    steps = {make("one"), make("two"), make("stubborn")}
    for step in steps:
        body.begin(step)

    ends = dict(body.ended() for _ in steps)

    assert ends.keys() == steps
    failed = {step.gpu: str(why) for step, why in ends.items() if why is not None}
    assert failed == {"stubborn": "it will not."}


def test_what_is_no_failure_of_a_step_ends_the_run() -> None:
    body = AtOnce(Host(1))
    body.begin(make("gone"))

    with pytest.raises(InterlaneError, match="no such host"):
        body.ended()
