"""What of Slurm matters to a driver, and what of it has changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from interlane.engines.slurm.machines import machine_of, occupied_by
from interlane.engines.slurm.reading import RUNNING, WAITING, SlurmJob
from interlane.engines.slurm.runs import SlurmListing
from interlane.engines.slurm.wanted import spec_of, wanted_of
from interlane.live.files.job import JobSpec
from interlane.live.port import Drained, MachineGone, MachineSeen, Report, Wanted, Withdrawn
from interlane.model import InvalidInput, Machine, MachineId, Occupied


@dataclass(frozen=True, slots=True)
class Visible:
    """What there is, as a driver is told."""

    machines: Mapping[MachineId, Machine] = field(default_factory=dict)
    drained: frozenset[MachineId] = frozenset()
    occupied: Mapping[MachineId, Occupied] = field(default_factory=dict)
    wanted: Mapping[str, Wanted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unfit:
    """A job that is held for us and that we cannot schedule."""

    job: SlurmJob
    why: str


def visible_of(listing: SlurmListing) -> Visible:
    """Return what a listing shows."""
    nodes = [
        node
        for node in listing.nodes
        if node.is_there
        and (not listing.partitions or not listing.partitions.isdisjoint(node.partitions))
    ]
    machines = {machine.id: machine for machine in map(machine_of, nodes)}
    gpus = {one: listing.nodes_by_name[one] for one in machines}
    wanted = {}
    for job in listing.brought.values():
        if is_wanted(job):
            try:
                wanted[job.key] = wanted_of(job, gpus.values())
            except InvalidInput:
                continue  # see ``Changes.unfit``
    return Visible(
        machines,
        frozenset(MachineId(node.name) for node in nodes if node.is_drained),
        occupied_by(listing.foreign, gpus),
        wanted,
    )


def is_wanted(job: SlurmJob) -> bool:
    """Tell whether a job runs, or could as soon as there is room."""
    return job.state in RUNNING or (job.state in WAITING and not job.dependency)


@dataclass(slots=True)
class Changes:
    """Remembers what was told last."""

    told: Visible = field(default_factory=Visible)
    listing: SlurmListing = field(default_factory=lambda: SlurmListing((), (), frozenset()))
    """The last one."""
    _unfit: set[str] = field(default_factory=set)

    def see(self, listing: SlurmListing) -> None:
        """Take a listing for told."""
        self.listing, self.told = listing, visible_of(listing)

    def news(self, listing: SlurmListing) -> Iterator[Report]:
        """Yield what has changed since the last listing."""
        old, new = self.told, visible_of(listing)
        self.listing, self.told = listing, new
        yield from (MachineGone(one) for one in old.machines if one not in new.machines)
        for machine_id, machine in new.machines.items():
            if old.machines.get(machine_id) != machine:
                yield MachineSeen(machine)
        yield from (Drained(one, drained=True) for one in sorted(new.drained - old.drained))
        yield from (Drained(one, drained=False) for one in sorted(old.drained - new.drained))
        for machine_id in new.machines:
            taken = new.occupied.get(machine_id, Occupied(machine_id))
            if old.occupied.get(machine_id, Occupied(machine_id)) != taken:
                yield taken
        yield from (one for key, one in new.wanted.items() if key not in old.wanted)
        for key in old.wanted:
            job = listing.brought.get(key)
            if key not in new.wanted and (job is None or job.state == "CANCELLED"):
                yield Withdrawn(key)

    def unfit(self, listing: SlurmListing) -> list[Unfit]:
        """Return jobs that are held for us and that we cannot schedule, each once."""
        found = [
            Unfit(job, "its user says on which nodes or with which jobs it runs")
            for job in listing.bound
            if job.key not in self._unfit
        ]
        self._unfit.update(one.job.key for one in found)
        for job in listing.brought.values():
            if not job.is_held or job.key in self._unfit or job.key in self.told.wanted:
                continue
            why = self._why_unfit(job, listing)
            if why is not None:
                self._unfit.add(job.key)
                found.append(Unfit(job, why))
        return found

    def _why_unfit(self, job: SlurmJob, listing: SlurmListing) -> str | None:
        try:
            spec_of(job, listing.nodes_by_name.values())
        except InvalidInput as error:
            return str(error)
        return None

    def spec_of(self, job: SlurmJob, listing: SlurmListing) -> JobSpec | None:
        """Return a job of a user's as one of ours."""
        try:
            return spec_of(job, listing.nodes_by_name.values())
        except InvalidInput:
            return None
