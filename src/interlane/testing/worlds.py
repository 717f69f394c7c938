"""The worlds behind engines, as the suite of ``engines`` looks at them."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

from interlane.live.driver.clock import Timed
from interlane.live.files.job import read_spec
from interlane.live.port import Attempt, Engine, Wanted
from interlane.model import (
    Device,
    JobId,
    Machine,
    MachineId,
    Occupied,
    Placement,
    Spot,
    TakenGpu,
    with_devices,
)
from interlane.testing.engines import Limits
from interlane.testing.pretend import Pace, PretendEngine, PretendWorld

MISHAPS: Final = 10
"""Kinds of things that happen by themselves."""


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at_s = 1_000_000.0

    def now_s(self) -> float:
        """Return the time."""
        return self.at_s


class PretendedWorld:
    """A world that only pretends, where everything that can happen does."""

    limits = Limits(restores=True)

    def __init__(
        self,
        rng: Random,
        engine: type[PretendEngine] = PretendEngine,
        world: type[PretendWorld] = PretendWorld,
        *,
        keeps_record: bool = False,
    ) -> None:
        machines = [_machine(f"m{number}", rng) for number in range(rng.randint(1, 3))]
        self._rng = rng
        self._engine = engine
        self._hands = Hands()
        self._rate = rng.choice((0.0, 0.1, 0.3))
        self._shortage = rng.choice((0.0, 0.0, 0.2))
        self._mishaps = rng.random() < 0.8
        self._weights = [rng.choice((0.2, 1.0, 1.0, 4.0)) for _ in range(MISHAPS)]
        self._names = iter(range(1_000))
        self._away: list[Machine] = []
        self._withdrawn: set[str] = set()
        self._whole = {machine.id: machine for machine in machines}
        self.world = world(
            {machine.id: machine for machine in machines},
            keeps_record,
            fails=lambda: rng.random() < self._rate,
            lacks=lambda: rng.random() < self._shortage,
            now_s=self._hands.now_s,
        )

    def engine(self) -> Engine:
        """Return a new engine on the same world."""
        return self._engine(world=self.world, pace=Pace.STEPS)

    def engine_died(self, engine: Engine) -> None:
        """Let some of what it was asked be on its way for ever, and some arrive."""
        engine.close()
        if self._rng.random() < 0.5:
            self.world.asked.clear()

    def clock(self, at_least_s: float) -> Timed:
        """Return a clock that is set by hand."""
        return self._hands

    def wait(self, seconds: float) -> None:
        """Set the clock."""
        self._hands.at_s += seconds

    def command(self) -> str:
        """Return anything: nobody runs it."""
        return "true"

    def running(self) -> Mapping[Attempt, Placement]:
        """Return what runs, half gangs included."""
        return {**self.world.parts, **self.world.running}

    def begun(self) -> Mapping[Attempt, int]:
        """Return how often attempts have begun."""
        return self.world.begun

    def exits(self) -> Mapping[Attempt, int | None]:
        """Return how attempts ended that were not stopped or lost."""
        return {one: end.exit_code for one, end in self.world.over.items() if end.why is None}

    def struck(self) -> frozenset[Attempt]:
        """Return none: nobody here ends a part of an attempt."""
        return frozenset()

    def machines(self) -> Mapping[MachineId, Machine]:
        """Return the machines that there are."""
        return self.world.machines

    def drained(self) -> frozenset[MachineId]:
        """Return the machines that somebody drained."""
        return frozenset(self.world.drained)

    def occupied(self) -> Mapping[MachineId, Occupied]:
        """Return what others have."""
        taken = self.world.occupied.items()
        return {one: what for one, what in taken if what != Occupied(one)}

    def withdrawn(self) -> frozenset[str]:
        """Return what was withdrawn."""
        return frozenset(self._withdrawn)

    def finish(self, attempt: Attempt, exit_code: int) -> None:
        """Let an attempt end by itself; at times nobody knows how."""
        unknown = self._rng.random() < self._rate / 2
        self.world.finish(attempt, None if unknown else exit_code)

    def work(self) -> bool:
        """Let the engine do one thing."""
        return self.world.work(self._rng)

    def calm(self) -> None:
        """Let nothing fail any more."""
        self._rate = self._shortage = 0.0
        self._mishaps = False

    # -- mishaps ----------------------------------------------------------------------

    def mishap(self) -> None:
        """Let one of many things happen."""
        if not self._mishaps:
            return
        mishaps = (
            self._vanish,
            self._return,
            self._lose_device,
            self._drain,
            self._occupy,
            self._want,
            self._withdraw,
            self._forget,
            self._haunt,
            self._cut_off,
        )
        (mishap,) = self._rng.choices(mishaps, self._weights)
        mishap()

    def _any_machine(self) -> Machine | None:
        machines = list(self.world.machines.values())
        return self._rng.choice(machines) if machines else None

    def _vanish(self) -> None:
        machine = self._any_machine()
        if machine is not None:
            self._away.append(self.world.vanish(machine.id, self._rng))

    def _return(self) -> None:
        """Let a machine return, at times under another name."""
        if self._away:
            machine = self._away.pop(self._rng.randrange(len(self._away)))
            whole = self._whole.pop(machine.id)
            if self._rng.random() < 0.3:
                whole = replace(whole, id=MachineId(f"n{next(self._names)}"))
            self._whole[whole.id] = whole
            self.world.see(whole)

    def _lose_device(self) -> None:
        """Let a device be lost, or all be well again."""
        machine = self._any_machine()
        if machine is None or not machine.gpus:
            return
        if machine.devices:
            self.world.see(self._whole[machine.id])
            return
        lost = self._rng.randrange(machine.gpus)
        devices = [machine.device(number) for number in range(machine.gpus)]
        devices[lost] = Device(devices[lost].type, devices[lost].memory_mib, 0)
        self.world.see(
            with_devices(
                machine.id,
                devices,
                cpu_milli=machine.cpu_milli,
                memory_mib=machine.memory_mib,
            )
        )

    def _drain(self) -> None:
        machine = self._any_machine()
        if machine is not None:
            self.world.drain(machine.id, drained=self._rng.random() < 0.5)

    def _occupy(self) -> None:
        machine = self._any_machine()
        if machine is None:
            return
        gpus = (TakenGpu(0, 500),) if machine.gpus and self._rng.random() < 0.5 else ()
        cpu_milli = self._rng.choice((0, 1_000))
        self.world.occupy(Occupied(machine.id, cpu_milli, gpus=gpus))

    def _want(self) -> None:
        number = next(self._names)
        job = read_spec({"name": "w", "run": "true", "resources": {"cpu": 1}})
        self.world.want(Wanted(f"key-{number}", job, "eve"))

    def _withdraw(self) -> None:
        if self.world.wanted:
            key = self._rng.choice(sorted(self.world.wanted))
            self.world.withdraw(key)
            self._withdrawn.add(key)

    def _forget(self) -> None:
        if self.world.running:
            self.world.forget(self._rng.choice(sorted(self.world.running, key=str)))

    def _cut_off(self) -> None:
        if self.world.running:
            self.world.cut_off(self._rng.choice(sorted(self.world.running, key=str)))

    def _haunt(self) -> None:
        machine = self._any_machine()
        if machine is not None:
            ghost = Attempt(JobId(f"ghost-{next(self._names)}"), 1)
            self.world.haunt(ghost, Placement((Spot(machine.id),)))

    def restore(self) -> None:
        """Let all machines be there, and nobody but us use them."""
        while self._away:
            self._return()
        for machine_id, machine in list(self.world.machines.items()):
            if machine.devices:
                self.world.see(self._whole[machine_id])
            self.world.drain(machine_id, drained=False)
            self.world.occupy(Occupied(machine_id))


def _machine(name: str, rng: Random) -> Machine:
    return Machine(
        MachineId(name),
        "EMULATED",
        rng.randint(1, 3),
        rng.randint(2, 4) * 1_000,
        65_536,
        16_384,
    )


def pretended(rng: Random) -> PretendedWorld:
    """Return a world that only pretends; every third engine keeps the record itself."""
    return PretendedWorld(rng, keeps_record=rng.random() < 1 / 3)
