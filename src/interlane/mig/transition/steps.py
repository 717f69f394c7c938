"""What a transition is made of: steps that something carries out, and actions made of steps.

A step is the least that can happen, and either happened or did not:

* make     cut an idle slot out of free units
* start    let a service run in an idle slot
* drain    let a service end in its slot: new requests go elsewhere, those inside are answered
* destroy  give an idle slot's units back

A busy slot cannot be destroyed; it must be drained first.  What operators speak of are actions:
*create* starts a service, *delete* drains one, *migrate* starts it elsewhere and then drains it
here, *repartition* destroys idle slots of a GPU and makes others.  An action waits for those it
comes ``after``, and for nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from interlane.mig.layouts import SlicePlace, broken_rule
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan
from interlane.mig.profiles import gpu_model
from interlane.model import InterlaneError


class Verb(StrEnum):
    """What a step does."""

    MAKE = "make"
    START = "start"
    DRAIN = "drain"
    DESTROY = "destroy"


class StepKind(StrEnum):
    """What an action is."""

    CREATE = "create"
    DELETE = "delete"
    MIGRATE = "migrate"
    REPARTITION = "repartition"


@dataclass(frozen=True, slots=True)
class TransitionStep:
    """The least that can happen; slots are made and destroyed without a service."""

    verb: Verb
    gpu: str
    model: str
    """Of the GPU."""
    instance: Instance

    def __str__(self) -> str:
        what = f" for {self.instance.service}" if self.instance.service else ""
        return f"{self.verb.value} {self.instance.slot} on {self.gpu}{what}"


@dataclass(frozen=True, slots=True)
class Action:
    """Steps that belong together, in their order."""

    kind: StepKind
    steps: tuple[TransitionStep, ...]
    after: tuple[int, ...] = ()
    """Actions that must be over before this one begins, by their place in the transition."""

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that it changes, each once."""
        return tuple(dict.fromkeys(step.gpu for step in self.steps))

    def __str__(self) -> str:
        match self.kind:
            case StepKind.MIGRATE:
                start, drain = self.steps
                return (
                    f"migrate {drain.instance.service} from {drain.instance.slot} on "
                    f"{drain.gpu} to {start.instance.slot} on {start.gpu}"
                )
            case StepKind.REPARTITION:
                gone = [str(s.instance.slot) for s in self.steps if s.verb is Verb.DESTROY]
                made = [str(s.instance.slot) for s in self.steps if s.verb is Verb.MAKE]
                cut = " ".join(made) or "nothing"
                return f"repartition {self.gpus[0]}: {' '.join(gone) or 'free units'} -> {cut}"
            case StepKind.CREATE | StepKind.DELETE:
                (step,) = self.steps
                where = f"{step.instance.slot} on {step.gpu}"
                return f"{self.kind.value} {step.instance.service} in {where}"


class ImpossibleStep(InterlaneError):
    """A step does not fit what is there."""

    def __init__(self, step: TransitionStep, why: str) -> None:
        super().__init__(f"Cannot {step}: {why}.")
        self.step = step


def after_step(state: PartitionPlan, step: TransitionStep) -> PartitionPlan:
    """Return what is there after a step; refuse one that does not fit what is there."""
    gpus = {gpu.id: gpu for gpu in state.gpus}
    gpu = gpus.get(step.gpu, GpuPlan(step.gpu, step.model))
    held = {one.start: one for one in gpu.instances}
    there = held.get(step.instance.start)
    slot = step.instance.slot
    if step.verb is Verb.MAKE:
        broken = broken_rule(gpu_model(gpu.model), (*gpu.layout, slot))
        if broken is not None:
            raise ImpossibleStep(step, broken.rstrip("."))
        held[slot.start] = Instance(slot.profile, slot.start)
    elif there is None or there.profile != slot.profile:
        raise ImpossibleStep(step, "there is no such slot")
    elif step.verb is Verb.START:
        if there.service:
            raise ImpossibleStep(step, f"{there.service} runs in it")
        held[slot.start] = step.instance
    elif step.verb is Verb.DRAIN:
        if there.service != step.instance.service:
            raise ImpossibleStep(step, f"{there.service or 'nothing'} runs in it")
        held[slot.start] = Instance(slot.profile, slot.start)
    else:
        if there.service:
            raise ImpossibleStep(step, f"{there.service} runs in it")
        del held[slot.start]
    instances = tuple(held[start] for start in sorted(held))
    gpus[step.gpu] = replace(gpu, instances=instances)
    return PartitionPlan(tuple(gpus.values()))


Content = frozenset[tuple[str, SlicePlace, str]]
"""GPU, slot and service of everything that is there."""


def content_of(state: PartitionPlan) -> Content:
    """Return what is there, for comparison: figures and empty GPUs do not count."""
    return frozenset((gpu.id, one.slot, one.service) for gpu, one in state.instances)


@dataclass(frozen=True, slots=True)
class Transition:
    """A way from what runs now to a plan."""

    current: PartitionPlan
    target: PartitionPlan
    floors: Mapping[str, float]
    """What each service has at every moment, at least."""
    actions: tuple[Action, ...]
    """In an order in which they may be carried out one by one."""
    borrowed: tuple[str, ...] = ()
    """GPUs that neither what runs now nor the plan uses, and the way needs."""

    @property
    def steps(self) -> Iterator[tuple[int, TransitionStep]]:
        """Every step with its action's place, in order."""
        return ((at, step) for at, one in enumerate(self.actions) for step in one.steps)

    def counts(self) -> dict[str, int]:
        """Return how many actions of each kind there are."""
        return {kind.value: sum(a.kind is kind for a in self.actions) for kind in StepKind}

    @property
    def kept(self) -> int:
        """Instances that no step touches."""
        touched = {
            (step.gpu, step.instance.start) for _, step in self.steps if step.verb is Verb.DRAIN
        }
        return sum(
            bool(one.service) and (gpu.id, one.start) not in touched
            for gpu, one in self.current.instances
        )

    @property
    def running(self) -> int:
        """Instances that run now."""
        return sum(bool(one.service) for _, one in self.current.instances)

    @property
    def peak_gpus(self) -> int:
        """GPUs that hold something at the same time, when actions go one by one."""
        held = {gpu.id: len(gpu.instances) for gpu in self.current.gpus}
        most = busy = sum(count > 0 for count in held.values())
        for _, step in self.steps:
            before = held.get(step.gpu, 0)
            if step.verb is Verb.MAKE:
                held[step.gpu] = before + 1
                busy += before == 0
            elif step.verb is Verb.DESTROY:
                held[step.gpu] = before - 1
                busy -= before == 1
            most = max(most, busy)
        return most

    @property
    def extra_gpus(self) -> int:
        """GPUs beyond those that hold something at the beginning, or at the end."""
        ends = (self.current, self.target)
        return self.peak_gpus - max(sum(bool(g.instances) for g in one.gpus) for one in ends)


def awaited(actions: Sequence[Action]) -> list[set[int]]:
    """Return whom each action waits for: those it comes after, and the last on its GPUs."""
    last: dict[str, int] = {}
    found = []
    for number, action in enumerate(actions):
        found.append({*action.after, *(last[gpu] for gpu in action.gpus if gpu in last)})
        last.update(dict.fromkeys(action.gpus, number))
    return found


def waves(actions: Sequence[Action]) -> list[list[int]]:
    """Return actions in waves: those of one wave can go at once, on GPUs that differ."""
    level: list[int] = []
    for before in awaited(actions):
        level.append(max((level[number] + 1 for number in before), default=0))
    found: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for number, at in enumerate(level):
        found[at].append(number)
    return found


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds that each kind of step takes.

    A slot is made and destroyed in about a second; a server takes its time to load its model
    and to answer what it has accepted.
    """

    make_s: float = 1.0
    start_s: float = 30.0
    drain_s: float = 10.0
    destroy_s: float = 1.0

    def of(self, step: TransitionStep) -> float:
        """Return how long a step takes."""
        match step.verb:
            case Verb.MAKE:
                return self.make_s
            case Verb.START:
                return self.start_s
            case Verb.DRAIN:
                return self.drain_s
            case Verb.DESTROY:
                return self.destroy_s


def makespan_s(actions: Sequence[Action], times: StepTimes) -> float:
    """Return how long actions take if each begins as soon as it may and its GPUs are free."""
    over_s: list[float] = []
    for action, before in zip(actions, awaited(actions), strict=True):
        begin_s = max((over_s[number] for number in before), default=0.0)
        over_s.append(begin_s + sum(times.of(step) for step in action.steps))
    return max(over_s, default=0.0)


def one_by_one_s(actions: Iterable[Action], times: StepTimes) -> float:
    """Return how long actions take one after another."""
    return sum(times.of(step) for action in actions for step in action.steps)
