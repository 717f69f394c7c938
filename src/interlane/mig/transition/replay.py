"""An independent verifier: replay a transition and say what is wrong with it, in sentences.

It shares no code with what orders actions.  It keeps state of its own, one row per slot, and
looks at every moment: after each step, and in the middle of it.  A service that is draining
gives nothing from the first moment on, and one that is starting gives nothing until the last.

``faults_in_order`` carries the actions out one by one; ``faults_at_once`` lets them overlap as
their waits allow, each taking a time drawn from random generator, which is how a controller
would run them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from interlane.mig.check import layout_faults
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan

SLACK = 1e-6
"""Share of a floor by which sums of floating-point numbers may fall short."""


@dataclass(frozen=True, slots=True)
class Doing:
    """One step as the verifier sees it."""

    verb: str
    gpu: str
    model: str
    profile: str
    start: int
    service: str
    throughput_per_s: float


@dataclass(frozen=True, slots=True)
class ReplayedAction:
    """One action as the verifier sees it."""

    doings: tuple[Doing, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """What a replay saw."""

    faults: tuple[str, ...]
    moments: int
    """How often every service was looked at."""
    lowest: float
    """The least that any service had, as a share of its floor."""
    end: frozenset[tuple[str, str, int, str]]
    """GPU, profile, start and service of all that was there at the end."""


class _State:
    """What is where: (GPU, start) -> profile, service, throughput."""

    def __init__(self, begin: PartitionPlan, floors: Mapping[str, float]) -> None:
        self._floors = floors
        self._models = {gpu.id: gpu.model for gpu in begin.gpus}
        self._slots: dict[tuple[str, int], tuple[str, str, float]] = {
            (gpu.id, one.start): (one.profile, one.service, one.throughput_per_s)
            for gpu in begin.gpus
            for one in gpu.instances
        }
        self.faults: list[str] = []
        self.moments = 0
        self.lowest = float("inf")

    def begin(self, doing: Doing) -> None:
        """Note that a step begins: what drains gives nothing from now on."""
        if doing.verb == "drain":
            key = (doing.gpu, doing.start)
            profile, service, _ = self._slots.get(key, ("", "", 0.0))
            if (profile, service) != (doing.profile, doing.service) or not service:
                self._wrong(doing, f"{service or 'nothing'} runs there")
            self._slots[key] = (doing.profile, doing.service, 0.0)
        self.look(doing)

    def end(self, doing: Doing) -> None:
        """Note that a step is over."""
        key = (doing.gpu, doing.start)
        there = self._slots.get(key)
        if doing.verb == "make":
            self._models.setdefault(doing.gpu, doing.model)
            if there is not None:
                self._wrong(doing, f"{there[0]} is there")
            self._slots[key] = (doing.profile, "", 0.0)
            self._check_layout(doing)
        elif there is None or there[0] != doing.profile:
            self._wrong(doing, "there is no such slot")
        elif doing.verb == "start":
            if there[1]:
                self._wrong(doing, f"{there[1]} runs there")
            self._slots[key] = (doing.profile, doing.service, doing.throughput_per_s)
        elif doing.verb == "drain":
            self._slots[key] = (doing.profile, "", 0.0)
        elif doing.verb == "destroy":
            if there[1]:
                self._wrong(doing, f"it is busy with {there[1]}")
            del self._slots[key]
        else:
            self._wrong(doing, "nobody knows this verb")
        self.look(doing)

    def look(self, doing: Doing | None = None) -> None:
        """Compare what every service has with its floor."""
        has = Counter[str]()
        for _, service, throughput in self._slots.values():
            has[service] += throughput  # type: ignore[assignment]
        self.moments += 1
        for service, floor in self._floors.items():
            if floor <= 0:
                continue
            self.lowest = min(self.lowest, has[service] / floor)
            if has[service] < floor * (1 - SLACK):
                when = "at the beginning" if doing is None else f"at {_said(doing)}"
                self.faults.append(
                    f"{service} has {has[service]:g} requests/s {when}, below its floor of "
                    f"{floor:g}."
                )

    def content(self) -> frozenset[tuple[str, str, int, str]]:
        """Return all that is there."""
        return frozenset(
            (gpu, profile, start, service)
            for (gpu, start), (profile, service, _) in self._slots.items()
        )

    def _wrong(self, doing: Doing, why: str) -> None:
        self.faults.append(f"Impossible to {_said(doing)}: {why}.")

    def _check_layout(self, doing: Doing) -> None:
        instances = tuple(
            Instance(profile, start)
            for (gpu, start), (profile, _, _) in sorted(self._slots.items())
            if gpu == doing.gpu
        )
        self.faults += layout_faults(GpuPlan(doing.gpu, self._models[doing.gpu], instances))


def _said(doing: Doing) -> str:
    return f"{doing.verb} {doing.profile}@{doing.start} on {doing.gpu}"


def faults_in_order(
    begin: PartitionPlan, actions: Sequence[ReplayedAction], floors: Mapping[str, float]
) -> Verified:
    """Replay actions one by one."""
    state = _State(begin, floors)
    state.look()
    for number, action in enumerate(actions):
        if any(other >= number for other in action.after):
            state.faults.append(f"Action {number} waits for one that comes later.")
        for doing in action.doings:
            state.begin(doing)
            state.end(doing)
    return _verified(state)


def faults_at_once(
    begin: PartitionPlan,
    actions: Sequence[ReplayedAction],
    floors: Mapping[str, float],
    rng: Random,
) -> Verified:
    """Replay actions as soon as their waits allow, with durations from the random generator."""
    state = _State(begin, floors)
    state.look()
    waiting = {number: {*action.after} for number, action in enumerate(actions)}
    busy: set[str] = set()
    running: list[tuple[float, int, int]] = []
    now_s = 0.0
    while waiting or running:
        for number in [one for one, left in waiting.items() if not left]:
            gpus = {doing.gpu for doing in actions[number].doings}
            if not gpus & busy:
                del waiting[number]
                busy |= gpus
                state.begin(actions[number].doings[0])
                heappush(running, (now_s + rng.expovariate(1.0), number, 0))
        if not running:
            state.faults.append(f"{len(waiting)} actions wait for each other for ever.")
            break
        now_s, number, at = heappop(running)
        doings = actions[number].doings
        state.end(doings[at])
        if at + 1 < len(doings):
            state.begin(doings[at + 1])
            heappush(running, (now_s + rng.expovariate(1.0), number, at + 1))
            continue
        busy -= {doing.gpu for doing in doings}
        for left in waiting.values():
            left.discard(number)
    return _verified(state)


def _verified(state: _State) -> Verified:
    return Verified(tuple(state.faults), state.moments, state.lowest, state.content())


def actions_of(document: Mapping[str, object]) -> list[ReplayedAction]:
    """Read the actions of a transition's document."""
    actions = document["actions"]
    assert isinstance(actions, list)
    return [
        ReplayedAction(tuple(_doings(action["steps"])), tuple(action["after"]))
        for action in actions
    ]


def _doings(steps: Sequence[Mapping[str, object]]) -> Iterator[Doing]:
    for step in steps:
        start, throughput = step["start"], step["throughput_per_s"]
        assert isinstance(start, int)
        assert isinstance(throughput, int | float)
        yield Doing(
            str(step["verb"]),
            str(step["gpu"]),
            str(step["model"]),
            str(step["profile"]),
            start,
            str(step["service"]),
            float(throughput),
        )
