"""What of Slurm matters to a driver, and what of it has changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from interlane.engines.slurm.machines import machine_of, occupied_by
from interlane.engines.slurm.reading import RUNNING, WAITING, SlurmJob
from interlane.engines.slurm.runs import SlurmListing
from interlane.engines.slurm.wanted import asks_of, spec_of
from interlane.live.files.job import JobSpec
from interlane.live.port import Drained, MachineGone, MachineSeen, Report, Wanted, Withdrawn
from interlane.model import InvalidInput, JobId, Machine, MachineId, Occupied


@dataclass(frozen=True, slots=True)
class Visible:
    """What there is, as a driver is told."""

    machines: Mapping[MachineId, Machine] = field(default_factory=dict)
    drained: frozenset[MachineId] = frozenset()
    occupied: Mapping[MachineId, Occupied] = field(default_factory=dict)
    wanted: Mapping[str, Wanted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is understood of a job."""

    said: tuple[object, ...]
    """From what."""
    wanted: Wanted | None
    why: str = ""
    """Why nothing is."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """A job that is held for us and that we cannot schedule."""

    job: SlurmJob
    why: str


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
    _read: dict[str, _Reading] = field(default_factory=dict)
    """Of each job what was last understood of it: to do so anew takes longer than to look."""

    def see(self, listing: SlurmListing) -> None:
        """Take a listing for told."""
        self.listing, self.told = listing, self.visible(listing)

    def visible(self, listing: SlurmListing) -> Visible:
        """Return what a listing shows."""
        ours = listing.partitions
        nodes = [
            node
            for node in listing.nodes
            if node.is_there and (not ours or not ours.isdisjoint(node.partitions))
        ]
        machines = {machine.id: machine for machine in map(machine_of, nodes)}
        gpus = {one: listing.nodes_by_name[one] for one in machines}
        understood = {
            job.key: self._understood(job, listing)
            for job in listing.brought.values()
            if is_wanted(job)
        }
        self._read = understood
        return Visible(
            machines,
            frozenset(MachineId(node.name) for node in nodes if node.is_drained),
            occupied_by(listing.foreign, gpus),
            {key: one.wanted for key, one in understood.items() if one.wanted is not None},
        )

    def _understood(self, job: SlurmJob, listing: SlurmListing) -> _Reading:
        """Return what is understood of a job, or why nothing is."""
        said = (job.name, job.partition, job.command, job.cpus, job.node_count, job.memory_mib,
                job.limit_s, asks_of(job), listing.shards)  # fmt: skip
        known = self._read.get(job.key)
        if known is not None and known.said == said:
            return known
        try:
            spec = spec_of(job, listing.shards)
        except InvalidInput as error:
            return _Reading(said, None, str(error))
        return _Reading(said, Wanted(job.key, spec, job.user, JobId(job.id), job.first_s))

    def news(self, listing: SlurmListing) -> Iterator[Report]:
        """Yield what has changed since the last listing."""
        old, new = self.told, self.visible(listing)
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
            why = self._understood(job, listing).why
            if why:
                self._unfit.add(job.key)
                found.append(Unfit(job, why))
        return found

    def spec_of(self, job: SlurmJob, listing: SlurmListing) -> JobSpec | None:
        """Return a job of a user's as one of ours; None if nothing is understood of it."""
        wanted = self._understood(job, listing).wanted
        return None if wanted is None else wanted.job
