"""An engine that runs nothing: it keeps what it was asked for, and reports as others do.

By itself it does at once what it is asked.  With ``Pace.STEPS`` it does one thing whenever
``PretendWorld.work`` is called, and may fail at it, so that whoever holds the random generator
decides what happens between two steps: a driver dies, a machine vanishes, a request arrives
late.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random

from interlane.live.files.job import JobSpec
from interlane.live.port import (
    Attempt,
    Begun,
    Drained,
    Ended,
    Found,
    Grew,
    Launch,
    MachineGone,
    MachineSeen,
    NeverBegan,
    NeverGrew,
    Observation,
    Output,
    Pending,
    Report,
    Stop,
    Tell,
    Traits,
    Wanted,
    Withdrawn,
)
from interlane.model import Machine, MachineId, Occupied, Placement


class Pace(Enum):
    """When an engine does what it is asked."""

    AT_ONCE = "at once"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What an engine was asked and has not yet done; it may outlive who asked."""

    by: "PretendEngine"
    attempt: Attempt
    launch: Launch | None = None
    """None for a stop."""


@dataclass
class PretendWorld:
    """What outlives drivers and engines: machines, and what runs there."""

    machines: dict[MachineId, Machine]
    keeps_record: bool = False
    running: dict[Attempt, Placement] = field(default_factory=dict)
    parts: dict[Attempt, Placement] = field(default_factory=dict)
    """Gangs of which some instances run, and the others are to follow."""
    launches: dict[Attempt, Launch] = field(default_factory=dict)
    started_s: dict[Attempt, float] = field(default_factory=dict)
    over: dict[Attempt, Ended] = field(default_factory=dict)
    never: set[Attempt] = field(default_factory=set)
    """Attempts that have not begun and never will."""
    lacked: set[Attempt] = field(default_factory=set)
    """Those of them for which a machine lacked something."""
    growths: dict[tuple[Attempt, int], bool] = field(default_factory=dict)
    """What came of each growth."""
    begun: Counter[Attempt] = field(default_factory=Counter)
    """How often each attempt began."""
    drained: set[MachineId] = field(default_factory=set)
    occupied: dict[MachineId, Occupied] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    asked: list[EngineRequest] = field(default_factory=list)
    engine: "PretendEngine | None" = None
    """Who watches now."""
    fails: Callable[[], bool] = lambda: False
    """Whether the next thing that may fail does."""
    lacks: Callable[[], bool] = lambda: False
    """Whether a machine lacks what the next start takes."""
    now_s: Callable[[], float] = lambda: 0.0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def tell(self, *reports: Report) -> None:
        """Let whoever watches report."""
        if self.engine is not None:
            for report in reports:
                self.engine.report(report)

    # -- one step of what was asked ---------------------------------------------------

    def work(self, rng: Random) -> bool:
        """Carry out something that was asked, in order for each attempt; False if idle."""
        firsts = list({one.attempt: one for one in reversed(self.asked)}.values())
        if not firsts:
            return False
        request = rng.choice(firsts)
        self.asked.remove(request)
        self.carry_out(request)
        return True

    def carry_out(self, request: EngineRequest) -> None:
        """Do what was asked; a gang may take two steps."""
        with self.lock:
            launch = request.launch
            if launch is None:
                reports = self.stopped(request.attempt)
            elif launch.growth:
                reports = self._grown(launch)
            else:
                reports = self._begun(request, launch)
        for report in reports:
            request.by.report(report)

    def _begun(self, request: EngineRequest, launch: Launch) -> list[Report]:
        attempt = launch.attempt
        if attempt in self.running and self.launches[attempt].placement != launch.placement:
            return self.stopped(attempt)  # who asked for it elsewhere is forgotten
        if attempt in self.never or attempt in self.running or attempt in self.over:
            return [self.sight(attempt)]
        if self.lacks():
            self.lacked.add(attempt)
            return [self.end(attempt, Ended(attempt, None), "The machines lacked something.")]
        if self.fails() or not self._there(launch.placement):
            return [self.end(attempt, Ended(attempt, None), "The machines refused it.")]
        self.launches[attempt] = launch
        if len(launch.placement.spots) > 1 and attempt not in self.parts and self.fails():
            self.parts[attempt] = Placement(launch.placement.spots[:1])
            self.asked.insert(0, request)
            return []
        self.parts.pop(attempt, None)
        self.begun[attempt] += 1
        self.running[attempt] = launch.placement
        self.started_s[attempt] = self.now_s()
        return [Begun(attempt)]

    def _grown(self, launch: Launch) -> list[Report]:
        attempt, number = launch.attempt, launch.growth
        runs = attempt in self.running and self._there(launch.placement)
        if (attempt, number) not in self.growths:
            self.growths[attempt, number] = runs and not self.fails()
            if self.growths[attempt, number]:
                self.running[attempt] += launch.placement
        if self.growths[attempt, number]:
            return [Grew(attempt, number)]
        return [NeverGrew(attempt, number, "There was no room.")]

    def _there(self, placement: Placement) -> bool:
        return all(
            spot.machine in self.machines
            and all(gpu < self.machines[spot.machine].gpus for gpu in spot.gpus)
            for spot in placement.spots
        )

    def stopped(self, attempt: Attempt) -> list[Report]:
        """End an attempt because we asked."""
        return [self.end(attempt, Ended(attempt, 143, "stopped"), "It was stopped before.")]

    def end(self, attempt: Attempt, ended: Ended, why: str) -> Ended | NeverBegan:
        """End an attempt that runs, or see to it that it never does; what is over stays so."""
        if self.running.pop(attempt, None) is not None:
            self.over[attempt] = ended
        elif attempt not in self.over:
            self.parts.pop(attempt, None)
            self.never.add(attempt)
        sight = self.sight(attempt)
        assert isinstance(sight, Ended | NeverBegan)
        return replace(sight, why=why) if isinstance(sight, NeverBegan) else sight

    def sight(self, attempt: Attempt) -> Begun | Ended | NeverBegan:
        """Say what has become of an attempt; one that has not begun never will."""
        if attempt in self.running:
            return Begun(attempt)
        if attempt in self.over:
            return self.over[attempt]
        self.parts.pop(attempt, None)
        self.never.add(attempt)
        lacks = "processes" if attempt in self.lacked else None
        return NeverBegan(attempt, "Nobody had begun it.", lacks)

    # -- what happens by itself -------------------------------------------------------

    def finish(self, attempt: Attempt, exit_code: int | None = 0) -> None:
        """Let an attempt end by itself."""
        with self.lock:
            if attempt not in self.running:
                return
            ended = self.end(attempt, Ended(attempt, exit_code), "")
        self.tell(ended)

    def cut_off(self, attempt: Attempt) -> None:
        """Let what runs an attempt be killed under it."""
        with self.lock:
            ended = self.end(
                attempt, Ended(attempt, None, "cut off", cause="It was killed."), ""
            )
        self.tell(ended)

    def vanish(self, machine_id: MachineId, rng: Random) -> Machine:
        """Let a machine go, with all that runs there; the rest of a gang goes, too."""
        machine = self.machines.pop(machine_id)
        self.occupied.pop(machine_id, None)
        reports: list[Report] = [MachineGone(machine_id)]
        for attempt, placement in [*self.running.items(), *self.parts.items()]:
            if machine_id in placement.machines:
                reports.append(self.end(attempt, Ended(attempt, None, "lost"), "It was lost."))
        rng.shuffle(reports)
        self.tell(*reports)
        return machine

    def see(self, machine: Machine) -> None:
        """Let a machine join, return or change."""
        self.machines[machine.id] = machine
        self.tell(MachineSeen(machine))

    def drain(self, machine_id: MachineId, *, drained: bool) -> None:
        """Drain a machine behind our operators' backs."""
        (self.drained.add if drained else self.drained.discard)(machine_id)
        self.tell(Drained(machine_id, drained))

    def occupy(self, taken: Occupied) -> None:
        """Let somebody else have a part of a machine."""
        self.occupied[taken.machine_id] = taken
        self.tell(taken)

    def want(self, wanted: Wanted) -> None:
        """Let somebody submit a job through the engine; it is told twice."""
        self.wanted[wanted.key] = wanted
        self.tell(wanted, wanted)

    def withdraw(self, key: str) -> None:
        """Let somebody withdraw it."""
        del self.wanted[key]
        self.tell(Withdrawn(key))

    def forget(self, attempt: Attempt) -> None:
        """Lose all traces of an attempt, and tell nobody."""
        del self.running[attempt]
        self.never.add(attempt)

    def haunt(self, attempt: Attempt, placement: Placement) -> None:
        """Let an attempt run that nobody has asked for."""
        self.running[attempt] = placement

    def found(self) -> Iterable[Found]:
        """Yield what runs, and all that is known of it."""
        for attempt, placement in self.running.items():
            launch = self.launches.get(attempt)
            if launch is not None:
                growth = max((last for one, last in self.growths if one == attempt), default=0)
                job, origin = launch.job, launch.origin
                yield Found(attempt, job, origin, placement, self.started_s[attempt], growth)


class PretendEngine:
    """See the module's text; whoever tests it says when attempts end."""

    def __init__(
        self,
        machines: Sequence[Machine] = (),
        *,
        world: PretendWorld | None = None,
        pace: Pace = Pace.AT_ONCE,
        ends_at_once: bool = False,
    ) -> None:
        self.world = world or PretendWorld({machine.id: machine for machine in machines})
        self.traits = Traits(
            "pretend",
            "pretend",
            keeps_record=self.world.keeps_record,
            spans_machines=True,
            grows=True,
        )
        self._pace = pace
        self._ends_at_once = ends_at_once
        self._tell: Tell = lambda report: None

    def start(self, tell: Tell) -> None:
        """Begin to report; who keeps the record takes nothing more from who was here before."""
        self._tell = tell
        self.world.engine = self
        if self.world.keeps_record:
            self.world.asked.clear()

    def close(self) -> None:
        """Report no more."""
        self._tell = lambda report: None

    def report(self, report: Report) -> None:
        """Tell whoever listens."""
        self._tell(report)

    def check(self, job: JobSpec, user: str, *, is_admin: bool = False) -> None:
        """Refuse nothing."""

    def observe(self, known: Collection[Attempt]) -> Observation:
        """Say what has become of attempts; what nobody has begun is fenced off."""
        world = self.world
        with world.lock:
            mine = {one.attempt for one in world.asked if one.by is self and one.launch}
            sights = [self._sight(attempt, mine) for attempt in known]
            seen = {*known, *mine}
            others = [Begun(one) for one in self._there() if one not in seen]
            launched = [one.origin.serial for one in world.launches.values()]
            return Observation(
                tuple(world.machines.values()),
                (*sights, *others),
                frozenset(world.drained),
                tuple(world.occupied.values()),
                tuple(world.wanted.values()),
                tuple(world.found()) if world.keeps_record else (),
                max(launched, default=0) if world.keeps_record else 0,
            )

    def _there(self) -> list[Attempt]:
        return [*self.world.running, *self.world.parts]

    def _sight(
        self, attempt: Attempt, mine: Collection[Attempt]
    ) -> Pending | Begun | Ended | NeverBegan:
        if attempt in mine and attempt not in self.world.running:
            return Pending(attempt)
        return self.world.sight(attempt)

    def begin(self, launch: Launch) -> None:
        """Let an attempt run, unless it was fenced off or has begun before."""
        self._ask(EngineRequest(self, launch.attempt, launch))
        if self._ends_at_once:
            self.finish(launch.attempt)

    def grow(self, launch: Launch) -> None:
        """Let an attempt have more."""
        self._ask(EngineRequest(self, launch.attempt, launch))

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """End an attempt."""
        self._ask(EngineRequest(self, attempt))

    def _ask(self, request: EngineRequest) -> None:
        if self._pace is Pace.AT_ONCE:
            self.world.carry_out(request)
        else:
            self.world.asked.append(request)

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Let go of what somebody wanted."""
        with self.world.lock:
            self.world.wanted.pop(key, None)

    def finish(self, attempt: Attempt, exit_code: int = 0) -> None:
        """Let an attempt end by itself."""
        self.world.finish(attempt, exit_code)

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Return nothing: it prints nothing."""
        return Output(max(0, begin), b"")
