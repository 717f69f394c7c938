"""The journal: every event a scheduler learned and every action it had, in order.

The kernel is deterministic, so a journal fed to a fresh scheduler must give the same actions:
``replay`` says where it does not.  A journal is text, one JSON object a line, the first of
which names the version:

    {"journal": "interlane", "version": 2}
    {"at_s": 0.0, "event": {"is": "Submitted", "job": {...}}}
    {"at_s": 0.0, "actions": [{"is": "Start", "job_id": "a", "placement": {...}}]}

Tests record with it; the kernel itself keeps no journal.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from interlane.kernel.rest import Decides, Wrapper
from interlane.model import (
    Action,
    Cancelled,
    Closeness,
    Demand,
    Device,
    Event,
    Finished,
    Grow,
    GrowFailed,
    Grown,
    InvalidInput,
    Job,
    Label,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    Placement,
    Preempt,
    Preempted,
    Recovered,
    Refusal,
    Refuse,
    Request,
    Requeue,
    Spot,
    Start,
    Started,
    StartFailed,
    Submitted,
    TakenGpu,
    Task,
    Ticked,
    Tier,
    Wake,
)

VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Learned:
    """The scheduler was told an event."""

    at_s: float
    event: Event


@dataclass(frozen=True, slots=True)
class Decided:
    """The scheduler was asked, and wished this."""

    at_s: float
    actions: tuple[Action, ...]


Entry = Learned | Decided


@dataclass(slots=True)
class Journal:
    """Events and actions in the order in which they came."""

    entries: list[Entry] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)


class RecordedScheduler(Wrapper):
    """A scheduler that keeps a journal."""

    def __init__(self, inner: Decides, journal: Journal | None = None) -> None:
        super().__init__(inner)
        self.journal = Journal() if journal is None else journal

    def learn(self, event: Event, now_s: float) -> None:
        """Take one event into the state, then note it: a refused event is not an event."""
        super().learn(event, now_s)
        self.journal.entries.append(Learned(now_s, event))

    def decide(self, now_s: float) -> tuple[Action, ...]:
        """Return what should be done now, and note it."""
        actions = super().decide(now_s)
        self.journal.entries.append(Decided(now_s, actions))
        return actions

    def handle(self, event: Event, now_s: float) -> tuple[Action, ...]:
        """Take one event in and return what should be done about it."""
        self.learn(event, now_s)
        return self.decide(now_s)

    def handle_all(self, events: Iterable[Event], now_s: float) -> tuple[Action, ...]:
        """Take all events of one moment in and return what should be done about them."""
        for event in events:
            self.learn(event, now_s)
        return self.decide(now_s)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision in which a replay departs from its journal."""

    entry: int
    """Number of the journal's entry, from 0."""
    at_s: float
    recorded: tuple[Action, ...]
    replayed: tuple[Action, ...]

    def __str__(self) -> str:
        return (
            f"Entry {self.entry} at {self.at_s:g} s: recorded {_words(self.recorded)}, "
            f"replayed {_words(self.replayed)}."
        )


def replay(journal: Iterable[Entry], fresh: Decides) -> Difference | None:
    """Feed a journal to a fresh scheduler; return the first difference, or None."""
    for number, entry in enumerate(journal):
        match entry:
            case Learned(at_s, event):
                fresh.learn(event, at_s)
            case Decided(at_s, recorded):
                replayed = fresh.decide(at_s)
                if replayed != recorded:
                    return Difference(number, at_s, recorded, replayed)
    return None


def _words(actions: tuple[Action, ...]) -> str:
    return "; ".join(str(action) for action in actions) or "nothing"


# -- as text ------------------------------------------------------------------------------


def to_lines(journal: Iterable[Entry]) -> Iterator[str]:
    """Yield a journal as lines of text, the version first."""
    yield json.dumps({"journal": "interlane", "version": VERSION})
    for entry in journal:
        match entry:
            case Learned(at_s, event):
                yield json.dumps({"at_s": at_s, "fact": _plain(event)})
            case Decided(at_s, actions):
                yield json.dumps({"at_s": at_s, "wishes": _plain(actions)})


def from_lines(lines: Iterable[str]) -> Journal:
    """Read a journal from lines of text; blank ones do not count."""
    journal = Journal()
    version_seen = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
            if not version_seen:
                _check_version(said)
                version_seen = True
            else:
                journal.entries.append(_entry(said))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"Line {number} of the journal cannot be read ({error!r}); "
                "it must be a line that interlane wrote."
            ) from None
    if not version_seen:
        raise InvalidInput("The journal is empty; its first line must name the version.")
    return journal


def _check_version(said: Mapping[str, object]) -> None:
    if said["journal"] != "interlane" or said["version"] != VERSION:
        raise InvalidInput(
            f"The journal says {dict(said)}, but only version {VERSION} of interlane's "
            "journals can be read; record it again."
        )


def _entry(said: Mapping[str, Any]) -> Entry:
    if "fact" in said:
        return Learned(said["at_s"], _EVENTS[said["fact"]["is"]](said["fact"]))
    return Decided(
        said["at_s"], tuple(_ACTIONS[action["is"]](action) for action in said["wishes"])
    )


def _plain(value: object) -> object:
    """Return a value of the model as what JSON knows."""
    if isinstance(value, Request):
        return {"tasks": _plain(value.tasks), "closeness": _plain(value.closeness)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        said: dict[str, object] = {"is": type(value).__name__}
        said |= {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        return said
    return value


def _bare(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name != "is"}


def _task(said: Mapping[str, Any]) -> Task:
    demand = _bare(said["demand"])
    demand["gpu_types"] = frozenset(demand["gpu_types"])
    for name in ("selectors", "tolerations"):
        demand[name] = frozenset(_labels(demand[name]))
    return Task(**{**_bare(said), "demand": Demand(**demand)})


def _job(said: Mapping[str, Any]) -> Job:
    request = said["request"]
    tasks, closeness = map(_task, request["tasks"]), Closeness(**_bare(request["closeness"]))
    return Job(**{**_bare(said), "request": Request(tuple(tasks), closeness)})


def _labels(said: Iterable[tuple[str, str]]) -> tuple[Label, ...]:
    return tuple((key, value) for key, value in said)


def _machine(said: Mapping[str, Any]) -> Machine:
    parts = {
        "devices": tuple(Device(**_bare(device)) for device in said["devices"]),
        "labels": _labels(said["labels"]),
        "taints": _labels(said["taints"]),
    }
    return Machine(**{**_bare(said), **parts})


def _placement(said: Mapping[str, Any]) -> Placement:
    return Placement(
        tuple(Spot(**{**_bare(spot), "gpus": tuple(spot["gpus"])}) for spot in said["spots"])
    )


def _refusal(said: Mapping[str, Any]) -> Refusal:
    return Refusal(**{**_bare(said), "tier": Tier(said["tier"])})


_EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Event]]] = MappingProxyType(
    {
        "Submitted": lambda said: Submitted(_job(said["job"])),
        "Recovered": lambda said: Recovered(
            _job(said["job"]),
            said["ran_s"],
            None if said["placement"] is None else _placement(said["placement"]),
            said["started_s"],
            said.get("growing", 0),
        ),
        "Started": lambda said: Started(said["job_id"], _placement(said["placement"])),
        "StartFailed": lambda said: StartFailed(**_bare(said)),
        "Grown": lambda said: Grown(said["job_id"], _placement(said["more"])),
        "GrowFailed": lambda said: GrowFailed(**_bare(said)),
        "Preempted": lambda said: Preempted(**_bare(said)),
        "Finished": lambda said: Finished(**_bare(said)),
        "Cancelled": lambda said: Cancelled(**_bare(said)),
        "MachineLost": lambda said: MachineLost(**_bare(said)),
        "MachineReturned": lambda said: MachineReturned(**_bare(said)),
        "MachineJoined": lambda said: MachineJoined(_machine(said["machine"])),
        "MachineChanged": lambda said: MachineChanged(_machine(said["machine"])),
        "MachineDrained": lambda said: MachineDrained(**_bare(said)),
        "MachineUndrained": lambda said: MachineUndrained(**_bare(said)),
        "MachineLeft": lambda said: MachineLeft(**_bare(said)),
        "Occupied": lambda said: Occupied(
            **{**_bare(said), "gpus": tuple(TakenGpu(**_bare(gpu)) for gpu in said["gpus"])}
        ),
        "Ticked": lambda said: Ticked(),
    }
)

_ACTIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], Action]]] = MappingProxyType(
    {
        "Start": lambda said: Start(said["job_id"], _placement(said["placement"])),
        "Grow": lambda said: Grow(said["job_id"], _placement(said["more"])),
        "Preempt": lambda said: Preempt(**_bare(said)),
        "Refuse": lambda said: Refuse(said["job_id"], _refusal(said["refusal"])),
        "Requeue": lambda said: Requeue(**_bare(said)),
        "Wake": lambda said: Wake(**_bare(said)),
    }
)
