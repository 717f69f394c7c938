"""An independent witness: replay a transition and say what is wrong with it, in sentences.

It shares no code with what orders actions.  It keeps books of its own, one row a slot, and
looks at every moment: after each step, and in the middle of it.  A service that is draining
gives nothing from the first moment on, and one that is starting gives nothing until the last.

``faults_in_order`` carries the actions out one by one; ``faults_at_once`` lets them overlap as
their waits allow, each taking a time drawn from dice, which is how a controller would run them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from interlane.mig.check import layout_faults
from interlane.mig.plan import GpuPlan, Instance, Plan

SLACK = 1e-6
"""Share of a floor by which sums of floating-point numbers may fall short."""


@dataclass(frozen=True, slots=True)
class Doing:
    """One step as the witness sees it."""

    verb: str
    gpu: str
    model: str
    profile: str
    start: int
    service: str
    throughput_per_s: float


@dataclass(frozen=True, slots=True)
class Deed:
    """One action as the witness sees it."""

    doings: tuple[Doing, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What a replay saw."""

    faults: tuple[str, ...]
    moments: int
    """How often every service was looked at."""
    lowest: float
    """The least that any service had, as a share of its floor."""
    end: frozenset[tuple[str, str, int, str]]
    """GPU, profile, start and service of all that was there at the end."""


class _Books:
    """What is where: (GPU, start) -> profile, service, throughput."""

    def __init__(self, begin: Plan, floors: Mapping[str, float]) -> None:
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
    begin: Plan, deeds: Sequence[Deed], floors: Mapping[str, float]
) -> Witnessed:
    """Replay actions one by one."""
    books = _Books(begin, floors)
    books.look()
    for number, deed in enumerate(deeds):
        if any(other >= number for other in deed.after):
            books.faults.append(f"Action {number} waits for one that comes later.")
        for doing in deed.doings:
            books.begin(doing)
            books.end(doing)
    return _witnessed(books)


def faults_at_once(
    begin: Plan, deeds: Sequence[Deed], floors: Mapping[str, float], dice: Random
) -> Witnessed:
    """Replay actions as soon as their waits allow, with durations from the dice."""
    books = _Books(begin, floors)
    books.look()
    waiting = {number: {*deed.after} for number, deed in enumerate(deeds)}
    busy: set[str] = set()
    running: list[tuple[float, int, int]] = []
    now_s = 0.0
    while waiting or running:
        for number in [one for one, left in waiting.items() if not left]:
            gpus = {doing.gpu for doing in deeds[number].doings}
            if not gpus & busy:
                del waiting[number]
                busy |= gpus
                books.begin(deeds[number].doings[0])
                heappush(running, (now_s + dice.expovariate(1.0), number, 0))
        if not running:
            books.faults.append(f"{len(waiting)} actions wait for each other for ever.")
            break
        now_s, number, at = heappop(running)
        doings = deeds[number].doings
        books.end(doings[at])
        if at + 1 < len(doings):
            books.begin(doings[at + 1])
            heappush(running, (now_s + dice.expovariate(1.0), number, at + 1))
            continue
        busy -= {doing.gpu for doing in doings}
        for left in waiting.values():
            left.discard(number)
    return _witnessed(books)


def _witnessed(books: _Books) -> Witnessed:
    return Witnessed(tuple(books.faults), books.moments, books.lowest, books.content())


def deeds_of(document: Mapping[str, object]) -> list[Deed]:
    """Read the actions of a transition's document."""
    actions = document["actions"]
    assert isinstance(actions, list)
    return [Deed(tuple(_doings(action["steps"])), tuple(action["after"])) for action in actions]


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
