"""An engine that runs nothing: it keeps what it was asked for, and reports as others do."""

import threading
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from interlane.live.files.job import JobSpec
from interlane.live.port import (
    Attempt,
    Begun,
    Ended,
    Grew,
    Launch,
    NeverBegan,
    Observation,
    Output,
    Stop,
    Tell,
    Traits,
)
from interlane.model import Machine, Placement


@dataclass
class PretendWorld:
    """What outlives drivers and engines: machines, and what runs there."""

    machines: dict[str, Machine]
    running: dict[Attempt, Placement] = field(default_factory=dict)
    over: dict[Attempt, Ended] = field(default_factory=dict)
    fenced: set[Attempt] = field(default_factory=set)
    """Attempts that were asked about before they began: they never will."""
    begun: Counter[Attempt] = field(default_factory=Counter)
    """How often each attempt began."""


class PretendEngine:
    """See the module's text; whoever tests it says when attempts end."""

    def __init__(
        self,
        machines: Sequence[Machine] = (),
        *,
        world: PretendWorld | None = None,
        ends_at_once: bool = False,
    ) -> None:
        self.world = world or PretendWorld({machine.id: machine for machine in machines})
        self.traits = Traits(
            "pretend", "pretend", keeps_record=False, spans_machines=True, grows=True
        )
        self._ends_at_once = ends_at_once
        self._tell: Tell = lambda report: None
        self._lock = threading.RLock()

    def start(self, tell: Tell) -> None:
        """Begin to report."""
        self._tell = tell

    def close(self) -> None:
        """Report no more."""
        self._tell = lambda report: None

    def check(self, job: JobSpec) -> None:
        """Refuse nothing."""

    def observe(self, known: Collection[Attempt]) -> Observation:
        """Say what has become of attempts; what nobody has begun is fenced off."""
        with self._lock:
            world = self.world
            sights = [self._sight(attempt) for attempt in known]
            others = [Begun(one) for one in world.running if one not in known]
            return Observation(tuple(world.machines.values()), (*sights, *others))

    def _sight(self, attempt: Attempt) -> Begun | Ended | NeverBegan:
        world = self.world
        if attempt in world.running:
            return Begun(attempt)
        if attempt in world.over:
            return world.over[attempt]
        world.fenced.add(attempt)
        return NeverBegan(attempt, "Nobody had begun it.")

    def begin(self, launch: Launch) -> None:
        """Let an attempt run, unless it was fenced off or has begun before."""
        attempt = launch.attempt
        with self._lock:
            world = self.world
            if attempt in world.fenced:
                self._tell(NeverBegan(attempt, "It was fenced off."))
                return
            if not world.begun[attempt]:
                world.begun[attempt] += 1
                world.running[attempt] = launch.placement
        self._tell(Begun(attempt))
        if self._ends_at_once:
            self.finish(attempt)

    def grow(self, launch: Launch) -> None:
        """Let an attempt have more."""
        with self._lock:
            self.world.running[launch.attempt] += launch.placement
        self._tell(Grew(launch.attempt))

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """End an attempt at once."""
        self._end(attempt, Ended(attempt, 143, "stopped"))

    def finish(self, attempt: Attempt, exit_code: int = 0) -> None:
        """Let an attempt end by itself."""
        self._end(attempt, Ended(attempt, exit_code))

    def _end(self, attempt: Attempt, ended: Ended) -> None:
        with self._lock:
            if self.world.running.pop(attempt, None) is None:
                return
            self.world.over[attempt] = ended
        self._tell(ended)

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Return nothing: it prints nothing."""
        return Output(max(0, begin), b"")
