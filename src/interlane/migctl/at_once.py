"""An executor that carries steps out at once, each in a thread of its own."""

from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final, Protocol

from interlane.mig.plan import PartitionPlan
from interlane.mig.transition.run import StepFailed
from interlane.mig.transition.steps import TransitionStep

AT_ONCE_MAX: Final = 16
"""Steps under way at most; a host rarely has more GPUs."""


class OneByOne(Protocol):
    """Carries steps out, and returns when that is over."""

    def observe(self, expected: PartitionPlan) -> PartitionPlan:
        """Return what is there; who cannot see services trusts ``expected`` for them."""
        ...

    def perform(self, step: TransitionStep) -> None:
        """Carry a step out; raise ``StepFailed`` if that fails."""
        ...


class AtOnce:
    """Lets somebody who does one thing at a time do several."""

    def __init__(self, body: OneByOne) -> None:
        self._body = body
        self._pool = ThreadPoolExecutor(AT_ONCE_MAX, "step")
        self._ends: SimpleQueue[tuple[TransitionStep, Future[None]]] = SimpleQueue()

    def observe(self, expected: PartitionPlan) -> PartitionPlan:
        """Return what is there."""
        return self._body.observe(expected)

    def begin(self, step: TransitionStep) -> None:
        """Begin a step."""
        done = self._pool.submit(self._body.perform, step)
        done.add_done_callback(lambda over: self._ends.put((step, over)))

    def ended(self) -> tuple[TransitionStep, StepFailed | None]:
        """Wait for a step to end; what is not a failure of the step is raised."""
        step, over = self._ends.get()
        try:
            over.result()
        except StepFailed as failure:
            return step, failure
        return step, None
