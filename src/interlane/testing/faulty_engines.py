"""Engines with one planted fault each; a suite that does not catch them all is too weak."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from interlane.live.port import (
    Attempt,
    Begun,
    Ended,
    Found,
    Launch,
    NeverBegan,
    NeverGrew,
    Observation,
    Report,
)
from interlane.model import Machine, MachineId, Placement
from interlane.testing.pretend import EngineRequest, PretendEngine, PretendWorld
from interlane.testing.worlds import PretendedWorld


class _BeginsAgain(PretendWorld):
    """Begins an attempt as often as it is asked to."""

    def _begun(self, request: EngineRequest, launch: Launch) -> list[Report]:
        again = launch.attempt in self.running
        reports = super()._begun(request, launch)
        self.begun[launch.attempt] += again
        return reports


class _RunsWhatNeverBegan(PretendWorld):
    """Says that an attempt failed to begin, and lets it run."""

    def _begun(self, request: EngineRequest, launch: Launch) -> list[Report]:
        reports = super()._begun(request, launch)
        if launch.attempt in self.running and launch.attempt.number > 1:
            return [NeverBegan(launch.attempt, "It took too long.")]
        return reports


class _BeginsWhatWasFenced(PretendWorld):
    """Says that nobody has begun an attempt, and begins it when the request arrives."""

    def sight(self, attempt: Attempt) -> Begun | Ended | NeverBegan:
        fenced = attempt in self.never
        sight = super().sight(attempt)
        if not fenced:
            self.never.discard(attempt)
        return sight


class _ForgetsStrangers(PretendEngine):
    """Tells only of attempts that it is asked about."""

    def observe(self, known: Collection[Attempt]) -> Observation:
        seen = super().observe(known)
        return replace(
            seen, attempts=tuple(one for one in seen.attempts if one.attempt in known)
        )


class _SwallowsEnds(PretendEngine):
    """Never tells that an attempt has ended by itself, not even when asked."""

    def report(self, report: Report) -> None:
        if not isinstance(report, Ended) or report.why is not None:
            super().report(report)

    def observe(self, known: Collection[Attempt]) -> Observation:
        seen = super().observe(known)
        lies = (
            Begun(one.attempt) if isinstance(one, Ended) and one.why is None else one
            for one in seen.attempts
        )
        return replace(seen, attempts=tuple(lies))


class _EndsTooEarly(PretendWorld):
    """Says that an attempt has ended when it was only asked to."""

    def stopped(self, attempt: Attempt) -> list[Report]:
        if attempt in self.running:
            return [Ended(attempt, 143, "stopped")]
        return super().stopped(attempt)


class _BeginsHalf(PretendWorld):
    """Lets the first instances of a gang run and forgets the others."""

    def _begun(self, request: EngineRequest, launch: Launch) -> list[Report]:
        reports = super()._begun(request, launch)
        if launch.attempt in self.running:
            self.running[launch.attempt] = Placement(launch.placement.spots[:1])
        return reports


class _IgnoresStops(PretendWorld):
    """Does not stop what runs."""

    def stopped(self, attempt: Attempt) -> list[Report]:
        return [] if attempt in self.running else super().stopped(attempt)


class _UsesWhatIsGone(PretendWorld):
    """Begins attempts on machines that are not there."""

    def _there(self, placement: Placement) -> bool:
        return True


class _CountsFromOne(PretendEngine):
    """Reports every attempt at a job as its first."""

    def report(self, report: Report) -> None:
        if isinstance(report, Begun | Ended | NeverBegan):
            report = replace(report, attempt=_first(report.attempt))
        super().report(report)

    def observe(self, known: Collection[Attempt]) -> Observation:
        seen = super().observe(known)
        firsts = (replace(one, attempt=_first(one.attempt)) for one in seen.attempts)
        return replace(seen, attempts=tuple(firsts))


class _EndsWithItsServer(PretendEngine):
    """Takes what runs with it when it ends."""

    def close(self) -> None:
        for attempt in list(self.world.running):
            self.world.forget(attempt)
        super().close()


class _RemembersMachines(PretendEngine):
    """Goes on to show machines that are gone."""

    def observe(self, known: Collection[Attempt]) -> Observation:
        world = self.world
        assert isinstance(world, _LongMemory)
        seen = super().observe(known)
        return replace(seen, machines=tuple({**world.ever, **world.machines}.values()))


@dataclass
class _LongMemory(PretendWorld):
    """A world in which it is remembered which machines there were."""

    ever: dict[MachineId, Machine] = field(default_factory=dict)

    def vanish(self, machine_id: MachineId, rng: Random) -> Machine:
        machine = super().vanish(machine_id, rng)
        self.ever[machine_id] = machine
        return machine


class _GrowsInSecret(PretendWorld):
    """Says that an attempt did not grow, and lets it."""

    def _grown(self, launch: Launch) -> list[Report]:
        super()._grown(launch)
        return [NeverGrew(launch.attempt, launch.growth, "It took too long.")]


class _KeepsNoRecord(PretendWorld):
    """Promises to keep the record, and does not."""

    def found(self) -> list[Found]:
        return []


def _first(attempt: Attempt) -> Attempt:
    return replace(attempt, number=1)


@dataclass(frozen=True, slots=True)
class Fault:
    """A planted fault, and the clauses that it breaks: which first is up to the script."""

    make: Callable[[Random], PretendedWorld]
    clauses: frozenset[str]


def _fault(
    *clauses: str,
    engine: type[PretendEngine] = PretendEngine,
    world: type[PretendWorld] = PretendWorld,
    keeps_record: bool = False,
) -> Fault:
    def make(rng: Random) -> PretendedWorld:
        return PretendedWorld(rng, engine, world, keeps_record=keeps_record)

    return Fault(make, frozenset(clauses))


FAULTY_ENGINES: Final = {
    "begins again what it is asked for twice": _fault(
        "an attempt begins once", world=_BeginsAgain
    ),
    "runs what it said had not begun": _fault("never means never", world=_RunsWhatNeverBegan),
    "begins what it has fenced off": _fault(
        "never means never", "one attempt at a time", world=_BeginsWhatWasFenced
    ),
    "does not tell of attempts that nobody knows": _fault(
        "unknown attempts end", engine=_ForgetsStrangers
    ),
    "swallows ends for good": _fault(
        "lost reports are made good", "comes to rest", engine=_SwallowsEnds
    ),
    "tells of an end before it comes": _fault("over means over", world=_EndsTooEarly),
    "begins a part of a gang": _fault("a gang runs as a whole", world=_BeginsHalf),
    "ignores stops": _fault("comes to rest", "unknown attempts end", world=_IgnoresStops),
    "begins on machines that are gone": _fault(
        "machines that are there", world=_UsesWhatIsGone
    ),
    "reports every attempt as the first": _fault(
        "comes to rest", "every job ends", engine=_CountsFromOne
    ),
    "ends what runs when it ends": _fault("what runs goes on", engine=_EndsWithItsServer),
    "shows machines that are gone": _fault(
        "machines are known", engine=_RemembersMachines, world=_LongMemory
    ),
    "grows in secret": _fault(
        "a gang runs as a whole", "within capacity", world=_GrowsInSecret
    ),
    "promises a record and keeps none": _fault(
        "nothing acknowledged is lost", world=_KeepsNoRecord, keeps_record=True
    ),
}
