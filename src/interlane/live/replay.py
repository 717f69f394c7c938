"""Plays the log of a server through fresh schedulers, and says where they decide otherwise.

The scheduler is deterministic: it is told what the log says that it was told, and must decide
what the log says that it decided.  Wherever a server built its scheduler again (it was started,
or a cycle had failed), the replay builds one from the jobs as its own fold of the log has them:
so it also shows that a server which was killed went on with what it had acknowledged.

A log whose beginning was thrown away is played from the first such moment on after which no
entry is missing.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from interlane.kernel.rest import decide_until_rest
from interlane.kernel.scheduler import Scheduler
from interlane.live.driver.machines import MachinesSeen
from interlane.live.driver.state import MakeScheduler, Snapshot
from interlane.live.driver.telling import told
from interlane.live.port import Traits
from interlane.live.store.record import JobRecord, after
from interlane.model import Action, Event, JobId, LogEntry, SchedulerBuilt

MakerOf = Callable[[Mapping[str, str]], MakeScheduler]
"""How schedulers were made, by the words that the log keeps."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision in which a replay departs from the log."""

    seq: int
    """The entry, or the one before the missing one."""
    at_s: float
    recorded: Action | None
    replayed: Action | None

    def __str__(self) -> str:
        return (
            f"Entry {self.seq} at {self.at_s:.3f} s: recorded {_words(self.recorded)}, "
            f"replayed {_words(self.replayed)}."
        )


@dataclass(slots=True)
class Replayed:
    """What a replay came to."""

    events: int = 0
    actions: int = 0
    starts: int = 0
    """How often a scheduler was built."""
    passed_over: int = 0
    """Entries before the first scheduler from which on the log is whole."""
    difference: Difference | None = None

    def document(self) -> dict[str, Any]:
        """Return it as what JSON knows."""
        found, said = self.difference, None
        if found is not None:
            sides = {"recorded": _words(found.recorded), "replayed": _words(found.replayed)}
            said = {"seq": found.seq, "at_s": found.at_s, **sides}
        return {**asdict(replace(self, difference=None)), "difference": said}


class _Differs(Exception):
    def __init__(self, difference: Difference) -> None:
        self.difference = difference


def replay(entries: Iterable[LogEntry], maker_of: MakerOf, whole_from: int = 0) -> Replayed:
    """Play a log, oldest entry first.

    Args:
        entries: the log.
        maker_of: how schedulers were made.
        whole_from: from this entry on none is missing.
    """
    player = _Player(maker_of, whole_from)
    try:
        for _, cycle in groupby(entries, key=lambda entry: entry.cycle):
            player.play(deque(cycle))
    except _Differs as differs:
        player.found.difference = differs.difference
    return player.found


class _Player:
    """Follows the log: the records, and a scheduler from the first on that was built."""

    def __init__(self, maker_of: MakerOf, whole_from: int) -> None:
        self.found = Replayed()
        self._maker_of = maker_of
        self._whole_from = whole_from
        self._records: dict[JobId, JobRecord] = {}
        """Jobs that have not ended."""
        self._scheduler: Scheduler | None = None

    def play(self, cycle: deque[LogEntry]) -> None:
        """Play what was stored together: what was learned, and what was then decided."""
        last = cycle[-1]
        while cycle and not (self._scheduler is not None and cycle[0].is_action):
            entry = cycle.popleft()
            for event in self._follow(entry):
                assert self._scheduler is not None
                self._scheduler.learn(event, entry.at_s)
        if self._scheduler is None:
            return
        decide_until_rest(
            self._scheduler, last.at_s, lambda actions: self._compare(actions, cycle, last)
        )
        if cycle:
            raise _Differs(Difference(cycle[0].seq, last.at_s, _action(cycle[0]), None))

    def _compare(
        self, actions: Iterable[Action], cycle: deque[LogEntry], last: LogEntry
    ) -> Iterator[Event]:
        """Compare actions with the log; yield what came of them at once."""
        for action in actions:
            if not cycle or cycle[0].what != action:
                entry = cycle[0] if cycle else None
                seq, recorded = (
                    (last.seq, None) if entry is None else (entry.seq, _action(entry))
                )
                raise _Differs(Difference(seq, last.at_s, recorded, action))
            yield from self._follow(cycle.popleft())
            while cycle and not cycle[0].is_action:
                yield from self._follow(cycle.popleft())

    def _follow(self, entry: LogEntry) -> list[Event]:
        """Follow an entry; return what the server's scheduler learned of it."""
        what, job_id = entry.what, entry.job_id
        before = None if job_id is None else self._records.get(job_id)
        learned: list[Event] = []
        if isinstance(what, SchedulerBuilt) and entry.seq >= self._whole_from:
            self._scheduler = self._built(what, entry)
            self.found.starts += 1
        elif self._scheduler is None:
            self.found.passed_over += 1
        else:
            self.found.actions += entry.is_action
            self.found.events += not entry.is_action
            knows = None if job_id is None else self._scheduler.state(job_id)
            learned = list(told(what, before, knows, entry.at_s))
        if job_id is not None and not entry.is_void:
            self._note(after(before, entry))
        return learned

    def _note(self, record: JobRecord) -> None:
        if record.is_open:
            self._records[record.id] = record
        else:
            self._records.pop(record.id, None)

    def _built(self, built: SchedulerBuilt, entry: LogEntry) -> Scheduler:
        """Build a scheduler as the server did that wrote the entry, from what is on record."""
        cluster = built.cluster
        machines = MachinesSeen(
            cluster.name,
            {machine.id: machine for machine in cluster},
            frozenset(built.drained),
            occupied={one.machine_id: one for one in built.occupied},
            topology=cluster.topology,
        )
        traits = Traits("replay", cluster.name, keeps_record=False, **entry.detail)
        make = self._maker_of(dict(built.settings))
        records = tuple(self._records.values())
        return Snapshot(entry.at_s, records, machines, traits, make, built.workload).scheduler()


def _words(action: Action | None) -> str:
    return "nothing" if action is None else str(action)


def _action(entry: LogEntry) -> Action | None:
    return entry.what if isinstance(entry.what, Action) else None
