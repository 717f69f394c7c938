"""GPUs that are not there: an executor with seeded failures and a time for every step."""

from collections.abc import Callable, Collection
from heapq import heappop, heappush
from itertools import count
from random import Random

from interlane.mig.plan import PartitionPlan
from interlane.mig.transition.run import StepFailed
from interlane.mig.transition.steps import StepTimes, TransitionStep, after_step


class SimulatedGpus:
    """Carries steps out on a state in memory.

    A step fails with the probability ``fail_rate``; every third of those that fail has
    happened all the same, as with a controller whose answer is lost.  Steps on ``broken`` GPUs
    always fail.
    """

    def __init__(
        self,
        state: PartitionPlan,
        *,
        rng: Random | None = None,
        fail_rate: float = 0.0,
        times: StepTimes | None = None,
        broken: Collection[str] = (),
        keep: Callable[[PartitionPlan], None] | None = None,
    ) -> None:
        self.state = state
        self.elapsed_s = 0.0
        self._rng = rng or Random(0)
        self._fail_rate = fail_rate
        self._times = times or StepTimes()
        self._broken = frozenset(broken)
        self._keep = keep
        self._under_way: list[tuple[float, int, TransitionStep]] = []
        """Steps by when they end; the number makes the order total."""
        self._numbers = count()

    def observe(self, expected: PartitionPlan) -> PartitionPlan:
        """Return what is there."""
        return self.state

    def begin(self, step: TransitionStep) -> None:
        """Begin a step, which takes its time."""
        # Steps take a quarter more or less than they should.
        takes_s = self._times.of(step) * self._rng.uniform(0.75, 1.25)
        heappush(self._under_way, (self.elapsed_s + takes_s, next(self._numbers), step))

    def ended(self) -> tuple[TransitionStep, StepFailed | None]:
        """Let the next step end, well or not."""
        self.elapsed_s, _, step = heappop(self._under_way)
        try:
            self._perform(step)
        except StepFailed as failure:
            return step, failure
        return step, None

    def _perform(self, step: TransitionStep) -> None:
        if step.gpu in self._broken:
            raise StepFailed(f"{step.gpu} does not answer.")
        if self._rng.random() >= self._fail_rate:
            self._become(after_step(self.state, step))
            return
        if self._rng.random() < 1 / 3:
            self._become(after_step(self.state, step))
            raise StepFailed("the answer was lost.")
        raise StepFailed("it was refused for now.")

    def _become(self, state: PartitionPlan) -> None:
        if self._keep is not None:
            self._keep(state)
        self.state = state
