"""Cluster files in YAML: machines, the levels of their topology, and what happens to them.

::

    name: lab
    topology: [zone, rack]
    machines:
      - {count: 8, name: a100, gpu_type: A100, gpus: 8, cpus: 96, memory_gib: 512,
         labels: {zone: a, rack: {prefix: r, size: 4}}}
      - {name: odd, cpus: 32, memory_gib: 128, taints: {dedicated: team-a},
         devices: [{type: T4, count: 2}, {type: K40, memory_gib: 12}]}
    events:
      - {at: 2h, drain: a100-0}

The order in the file is the order of machines.  ``docs/reference/cluster-file.md`` lists all
keys; ``machine_entry`` and ``machine_events`` read them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interlane.model import Cluster, InvalidFile, InvalidInput, Machine
from interlane.traces.entries import FileSection
from interlane.traces.machine_entry import entry_of, machines_of
from interlane.traces.machine_events import TimedEvent, event_entry, events_of, machine_in

_KEYS: Final = ("name", "topology", "clips_requests", "machines", "events")


@dataclass(frozen=True)
class ClusterScenario:
    """A cluster as it is at the beginning, and what happens to its machines later."""

    cluster: Cluster
    events: tuple[TimedEvent, ...] = ()
    """In order of time."""

    @property
    def machines(self) -> Iterable[Machine]:
        """All machines that ever are there, in every form that they take."""
        yield from self.cluster
        yield from (machine for one in self.events if (machine := machine_in(one.event)))

    @property
    def gpu_types(self) -> frozenset[str]:
        """GPU types that are there at some time."""
        return frozenset(kind for machine in self.machines for kind in machine.gpu_types)


def read_scenario(path: Path) -> ClusterScenario:
    """Read a cluster file."""
    import yaml

    try:
        contents = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "unreadable"
        raise InvalidFile(
            str(path),
            f"this is not YAML ({problem}); mend it.",
            mark.line + 1 if mark else None,
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(str(path), f"the file cannot be read ({error}).") from None
    return scenario_of(str(path), path.stem, contents)


def scenario_of(file: str, stem: str, contents: object) -> ClusterScenario:
    """Return what a cluster file says; ``stem`` is the name of one that has none."""
    if not isinstance(contents, dict):
        raise InvalidFile(file, "a cluster file holds the keys name and machines; add them.")
    top = FileSection(file, "the file", contents, _KEYS)
    cluster = _cluster(top, stem)
    scenario = ClusterScenario(cluster, events_of(file, cluster, top.listed("events")))
    for level in cluster.topology:
        if all(machine.label(level) is None for machine in scenario.machines):
            raise InvalidFile(
                file, f"topology has the level {level!r}, but no machine has such a label."
            )
    return scenario


def _cluster(top: FileSection, stem: str) -> Cluster:
    entries = top.values.get("machines")
    if not isinstance(entries, list) or not entries:
        raise InvalidFile(top.file, "machines must be a list with at least one entry; add one.")
    name = top.values.get("name", stem)
    if not isinstance(name, str):
        raise InvalidFile(top.file, f"name is {name!r}, but it must be text; put it in quotes.")
    groups = [
        machines_of(top.file, f"machine entry {number}", entry)
        for number, entry in enumerate(entries, 1)
    ]
    machines = tuple(machine for group in groups for machine in group)
    try:
        return Cluster(name, machines, top.claim("clips_requests"), _topology(top))
    except InvalidFile:
        raise
    except InvalidInput as error:
        raise InvalidFile(top.file, str(error)) from None


def _topology(top: FileSection) -> tuple[str, ...]:
    levels = top.listed("topology")
    for level in levels:
        if not isinstance(level, str) or not level:
            raise top.wrong("topology", "a list of labels' keys, the widest first")
    return tuple(str(level) for level in levels)


def cluster_document(cluster: Cluster, events: Sequence[TimedEvent] = ()) -> dict[str, object]:
    """Return a cluster, and what happens to it, as a cluster file has it."""
    document: dict[str, object] = {"name": cluster.name}
    if cluster.topology:
        document["topology"] = list(cluster.topology)
    if cluster.clips_requests:
        document["clips_requests"] = True
    document["machines"] = [entry_of(machine) for machine in cluster]
    if events:
        document["events"] = [event_entry(one) for one in events]
    return document
