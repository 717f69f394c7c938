"""The machines that there are, as the engine sees them and as operators want them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from interlane.live.port import Drained, MachineGone, MachineReport, MachineSeen, Observation
from interlane.model import (
    Cluster,
    Event,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineUndrained,
    Occupied,
)

Known = Mapping[MachineId, Machine]


@dataclass(frozen=True)
class MachinesSeen:
    """All machines at one moment; a report makes the next, and events for a scheduler."""

    name: str
    known: Known = field(default_factory=dict)
    """In the order in which they were first seen."""
    drained_here: frozenset[MachineId] = frozenset()
    """Drained by our operators; holds for machines that are away, too."""
    drained_there: frozenset[MachineId] = frozenset()
    """Drained by somebody else through the engine."""
    occupied: Mapping[MachineId, Occupied] = field(default_factory=dict)
    topology: tuple[str, ...] = ()

    @cached_property
    def cluster(self) -> Cluster:
        """The machines as a scheduler knows them; made once, for it is asked for every job."""
        return Cluster(self.name, tuple(self.known.values()), topology=self.topology)

    @property
    def drained(self) -> frozenset[MachineId]:
        """Machines that take nothing new."""
        return (self.drained_here | self.drained_there) & self.known.keys()

    def events(self) -> Iterator[Event]:
        """Yield what a scheduler must learn that knows ``cluster`` and nothing else."""
        yield from map(MachineDrained, sorted(self.drained))
        yield from self.occupied.values()

    def after(self, report: MachineReport) -> "tuple[MachinesSeen, list[Event]]":
        """Return the machines after a report, and what a scheduler must learn."""
        match report:
            case MachineSeen(machine):
                return self._with(machine)
            case MachineGone(machine_id):
                return self._without(machine_id)
            case Drained(machine_id, drained):
                there = self.drained_there - {machine_id}
                now = replace(self, drained_there=there | {machine_id} if drained else there)
                return now, now.changes_of_drains(self)
            case Occupied(machine_id):
                if machine_id not in self.known or self.occupied.get(machine_id) == report:
                    return self, []
                now = replace(self, occupied={**self.occupied, machine_id: report})
                return now, [report]

    def with_drain(
        self, machine_id: MachineId, *, drained: bool
    ) -> "tuple[MachinesSeen, list[Event]]":
        """Return the machines after an operator has drained one, or let it work again."""
        here = self.drained_here - {machine_id}
        now = replace(self, drained_here=here | {machine_id} if drained else here)
        return now, now.changes_of_drains(self)

    def changes_of_drains(self, before: "MachinesSeen") -> list[Event]:
        """Return what a scheduler must learn of drains that were others before."""
        begun = [MachineDrained(one) for one in sorted(self.drained - before.drained)]
        over = sorted((before.drained - self.drained) & self.known.keys())
        return [*begun, *map(MachineUndrained, over)]

    def _with(self, machine: Machine) -> "tuple[MachinesSeen, list[Event]]":
        before = self.known.get(machine.id)
        if before == machine:
            return self, []
        now = replace(self, known={**self.known, machine.id: machine})
        if before is not None:
            return now, [MachineChanged(machine)]
        return now, [MachineJoined(machine), *now.changes_of_drains(self)]

    def _without(self, machine_id: MachineId) -> "tuple[MachinesSeen, list[Event]]":
        if machine_id not in self.known:
            return self, []
        left = {one: machine for one, machine in self.known.items() if one != machine_id}
        taken = {one: what for one, what in self.occupied.items() if one != machine_id}
        return replace(self, known=left, occupied=taken), [MachineLeft(machine_id)]


def machine_of(report: MachineReport) -> MachineId:
    """Return the machine that a report is about."""
    return report.machine.id if isinstance(report, MachineSeen) else report.machine_id


def reports_in(observation: Observation, machines: MachinesSeen) -> Iterator[MachineReport]:
    """Yield reports that make up for all that were missed since machines were as they are."""
    there = {machine.id for machine in observation.machines}
    yield from (MachineGone(one) for one in machines.known if one not in there)
    yield from map(MachineSeen, observation.machines)
    drains = observation.drained, machines.drained_there
    yield from (Drained(one, drained=True) for one in sorted(drains[0] - drains[1]))
    yield from (Drained(one, drained=False) for one in sorted(drains[1] - drains[0]))
    told = {one.machine_id for one in observation.occupied}
    yield from observation.occupied
    yield from (Occupied(one) for one in machines.occupied if one not in told and one in there)
