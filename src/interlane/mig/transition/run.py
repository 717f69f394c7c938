"""Carrying a transition out: on GPUs at once, with every step in the journal before it begins.

Whatever may go at once does, one step on each GPU.  Before more is begun, the loop looks at the
GPUs on which nothing is under way.  If they are as the journal says, the next steps are begun;
if a step that was begun turns out to have happened, it is noted; if they are otherwise, nothing
more is begun, and once nothing is under way a new way is planned from what is really there.  A
step that fails is tried again a few times; then its GPU is left alone from there on, and the
rest is planned anew around it.  All of this is the same after a crash: to resume is to read the
journal and enter the loop.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from interlane.mig.demand import Problem
from interlane.mig.plan import PartitionPlan
from interlane.mig.transition.documents import transition_document
from interlane.mig.transition.joint import joint_plan
from interlane.mig.transition.journal import (
    Done,
    JournalPhase,
    Opened,
    Record,
    Replanned,
    RolledBack,
    StepBegun,
    StepFailure,
    TransitionFinished,
    TransitionProgress,
)
from interlane.mig.transition.order import ordered
from interlane.mig.transition.present import present
from interlane.mig.transition.steps import (
    Content,
    Transition,
    TransitionStep,
    after_step,
    content_of,
)
from interlane.model import InterlaneError, InvalidInput

RETRIES: Final = 2
"""How often a step that failed is tried again before its GPU is left alone."""
REPLANS: Final = 8
"""New ways that one run takes before it gives up."""


class StepFailed(InterlaneError):
    """A step could not be carried out now; it may have happened all the same."""


class Executor(Protocol):
    """Carries steps out on GPUs."""

    def observe(self, expected: PartitionPlan) -> PartitionPlan:
        """Return what is there; who cannot see services trusts ``expected`` for them."""
        ...

    def begin(self, step: TransitionStep) -> None:
        """Begin a step; others may be under way, on other GPUs."""
        ...

    def ended(self) -> tuple[TransitionStep, StepFailed | None]:
        """Wait until a step that was begun is over; return it, and why it failed if it did."""
        ...


Write = Callable[[Record], None]
"""Makes a record durable before it returns."""

Tell = Callable[[str], None]


class RunEnd(StrEnum):
    """How a run ended."""

    DONE = "done"
    ROLLED_BACK = "rolled back"
    GAVE_UP = "gave up"


@dataclass(frozen=True, slots=True)
class RunEnded:
    """What a run came to."""

    end: RunEnd
    state: PartitionPlan
    """What is there."""
    steps: int
    """Steps that this run carried out."""
    retries: int
    replans: int
    why: str = ""


class TransitionRun:
    """One run over a transition, from wherever its journal has come."""

    def __init__(
        self,
        progress: TransitionProgress,
        executor: Executor,
        write: Write,
        *,
        tell: Tell | None = None,
        retries: int = RETRIES,
        replans: int = REPLANS,
    ) -> None:
        self._progress = progress
        self._executor = executor
        self._write = write
        self._tell: Tell = tell or (lambda _: None)
        self._most_retries = retries
        self._most_replans = replans
        self._steps = self._retries = self._replans = 0
        self._under_way: dict[TransitionStep, int] = {}
        """Steps that the executor carries out now, with their numbers."""

    def forward(self) -> RunEnded:
        """Go on, forward or back as the journal has it, to the end."""
        if self._progress.phase is JournalPhase.NEW:
            self._note(Opened(self._progress.id))
        return self._loop()

    def back(self) -> RunEnded:
        """Go back to the beginning, wherever the transition has come."""
        progress = self._progress
        if progress.phase is JournalPhase.NEW:
            self._note(Opened(progress.id))
        if not progress.is_back:
            self._note(RolledBack(self._document(self._way_back(self._observed()))))
        return self._loop()

    # -- the loop ---------------------------------------------------------------------

    def _loop(self) -> RunEnded:
        progress = self._progress
        while progress.phase is not JournalPhase.OVER:
            observed = self._observed()
            self._note_what_happened(observed)
            trouble = self._trouble(observed)
            if trouble is None:
                self._begin_all()
            elif not self._under_way and not self._replanned(observed, trouble):
                return self._ended(RunEnd.GAVE_UP, trouble.why)
            if self._under_way:
                self._await_one()
        return self._ended(RunEnd.ROLLED_BACK if progress.is_back else RunEnd.DONE, "")

    def _note_what_happened(self, observed: PartitionPlan) -> None:
        """Note steps as over that seemed to have failed, or of which nobody knew."""
        progress = self._progress
        for number in [*progress.begun]:
            step = progress.steps[number]
            if step not in self._under_way:
                happened = after_step(progress.expected, step)
                if _content(observed, {step.gpu}) == _content(happened, {step.gpu}):
                    self._note(Done(number))

    def _trouble(self, observed: PartitionPlan) -> "_Trouble | None":
        """Return why the way cannot be gone on, if it cannot."""
        progress = self._progress
        for number, failures in progress.begun.items():
            if failures > self._most_retries:
                step = progress.steps[number]
                why = f"{step} failed {failures} times"
                return _Trouble(why, progress.frozen | {step.gpu})
        known = {gpu.id for gpu in (*observed.gpus, *progress.expected.gpus)}
        known -= {step.gpu for step in self._under_way}
        if _content(observed, known) != _content(progress.expected, known):
            why = "what is there is not what the journal says"
            return _Trouble(why, progress.frozen)
        return None

    def _begin_all(self) -> None:
        """Begin all that may begin, and again what failed; note the end if there is nothing."""
        progress = self._progress
        again = [n for n in progress.begun if progress.steps[n] not in self._under_way]
        for number in (*again, *progress.ready):
            step = progress.steps[number]
            self._note(StepBegun(number))
            self._under_way[step] = number
            self._executor.begin(step)
        if not self._under_way:
            self._note(TransitionFinished())

    def _await_one(self) -> None:
        step, failure = self._executor.ended()
        number = self._under_way.pop(step)
        if failure is None:
            self._steps += 1
            self._tell(str(step))
            self._note(Done(number))
        else:
            self._retries += 1
            self._tell(f"{step}: {failure}")
            self._note(StepFailure(number, str(failure)))

    def _observed(self) -> PartitionPlan:
        return self._executor.observe(self._progress.expected)

    def _note(self, record: Record) -> None:
        self._write(record)
        self._progress.learn(record)

    def _ended(self, end: RunEnd, why: str) -> RunEnded:
        return RunEnded(end, self._observed(), self._steps, self._retries, self._replans, why)

    # -- other ways -------------------------------------------------------------------

    def _replanned(self, observed: PartitionPlan, trouble: "_Trouble") -> bool:
        """Take another way from what is there; False if there is none."""
        self._replans += 1
        if self._replans > self._most_replans:
            return False
        progress = self._progress
        try:
            if progress.is_back:
                way = self._way_back(observed)
            else:
                way = replanned(observed, progress.origin, progress.problem, trouble.frozen)
        except InvalidInput as error:
            self._tell(str(error))
            return False
        self._tell(f"{trouble.why}; planned anew: {len(way.actions)} actions")
        self._note(Replanned(trouble.why, self._document(way), sorted(trouble.frozen)))
        return True

    def _way_back(self, observed: PartitionPlan) -> Transition:
        origin, problem = self._progress.origin, self._progress.problem
        there = _present(observed, problem)
        return ordered(there, origin.current, origin.floors, problem, exact=True)

    def _document(self, way: Transition) -> dict[str, object]:
        return transition_document(way, self._progress.problem)


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why another way must be found."""

    why: str
    frozen: frozenset[str]
    """GPUs that cannot be changed."""


def _content(state: PartitionPlan, gpus: Collection[str]) -> Content:
    """Return what is on some of the GPUs."""
    return frozenset(one for one in content_of(state) if one[0] in gpus)


def replanned(
    observed: PartitionPlan, origin: Transition, problem: Problem, frozen: frozenset[str]
) -> Transition:
    """Return a way from what is really there to where the transition was going.

    Where GPUs cannot be changed, another plan is made around them.
    """
    there = _present(observed, problem)
    target = origin.target
    if frozen:
        target = _with_idle(joint_plan(problem, there, frozen=frozen).plan, there, frozen)
    return ordered(there, target, origin.floors, problem, frozen=frozen)


def _with_idle(
    plan: PartitionPlan, there: PartitionPlan, frozen: frozenset[str]
) -> PartitionPlan:
    """Return the plan with frozen GPUs as they are, their idle slots included."""
    held = [gpu for gpu in there.gpus if gpu.id in frozen and gpu.instances]
    return PartitionPlan((*held, *(gpu for gpu in plan.gpus if gpu.id not in frozen)))


def _present(observed: PartitionPlan, problem: Problem) -> PartitionPlan:
    known = {service.name for service in problem.services}
    retired = {one.service for _, one in observed.instances if one.service} - known
    return present(observed, problem, retired)
