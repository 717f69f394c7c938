"""The journal of a transition: what was begun, what is over, what went wrong, in order.

A record is written before its step is begun (``Begun``) and after it is over (``Done``).  Who
reads the journal after a crash therefore knows every step's fate but one, and that one can be
seen by looking at the GPUs.  ``Progress`` is where the records lead:

                 Begun               Replanned, RolledBack
    ready  ─────────────▶  stepping ───────────────────────▶ ready
      ▲                     │  │ ▲
      └──────── Done ───────┘  └─┘ Begun, Failed

A journal is text, one record a line: JSON with a checksum of itself.  A last line without its
end is what a crash in the middle of writing leaves, and is passed over; any other line that
does not match its checksum means that the journal is damaged.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from zlib import crc32

from interlane.mig.demand import Problem
from interlane.mig.plan import Plan
from interlane.mig.transition.documents import read_transition
from interlane.mig.transition.steps import Step, Transition, after_step
from interlane.model import IllegalTransition, InterlaneError, InvalidFile

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Opened:
    """The journal belongs to this transition."""

    id: str
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Begun:
    """A step is about to be carried out; nobody knows yet whether it was."""

    step: int


@dataclass(frozen=True, slots=True)
class Done:
    """A step is over."""

    step: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A step failed; it may have happened all the same."""

    step: int
    why: str


@dataclass(frozen=True, slots=True)
class Replanned:
    """Another way is taken from here, since what was there is not what was expected."""

    why: str
    transition: dict[str, Any]
    frozen: list[str] = field(default_factory=list)
    """GPUs that could not be changed, and are left alone from here on."""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The way back to the beginning is taken from here."""

    transition: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """Everything is where the way leads."""


Record = Opened | Begun | Done | Failed | Replanned | RolledBack | Finished

_RECORDS: Final[Mapping[str, type[Record]]] = {
    "opened": Opened,
    "begun": Begun,
    "done": Done,
    "failed": Failed,
    "replanned": Replanned,
    "rolled back": RolledBack,
    "finished": Finished,
}
_NAMES: Final = {kind: name for name, kind in _RECORDS.items()}


# -- as text --------------------------------------------------------------------------


def line_of(record: Record) -> str:
    """Return a record as a line, its end included."""
    content = {name: getattr(record, name) for name in record.__slots__}
    text = json.dumps({"is": _NAMES[type(record)], **content}, sort_keys=True)
    return f"{crc32(text.encode()):08x} {text}\n"


@dataclass(frozen=True, slots=True)
class Read:
    """The records of a journal, and how much of its text they are."""

    records: tuple[Record, ...]
    length: int
    """Bytes; what follows is half a line, to be cut off before more is written."""


def read_journal(content: bytes, file: str) -> Read:
    """Read a journal; refuse one that is damaged."""
    whole, _, _ = content.rpartition(b"\n")
    length = len(whole) + 1 if whole else 0
    lines = whole.split(b"\n") if whole else []
    records = tuple(_record(line, file, number) for number, line in enumerate(lines, 1))
    if records and not isinstance(records[0], Opened):
        raise InvalidFile(file, "this is no journal of a transition; name another file.", 1)
    if not records and content and not _may_begin(content):
        raise InvalidFile(file, "this is no journal of a transition; name another file.")
    return Read(records, length)


def _may_begin(content: bytes) -> bool:
    """Tell whether this may be the first part of a first line."""
    return len(content) < 4096 and all(one in b"0123456789abcdef" for one in content[:8])


def _record(line: bytes, file: str, number: int) -> Record:
    checksum, _, text = line.partition(b" ")
    try:
        if int(checksum, 16) != crc32(text):
            raise ValueError
        values = json.loads(text)
        return _RECORDS[values.pop("is")](**values)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidFile(
            file,
            "the journal is damaged here; restore it, or look at the GPUs and plan anew "
            "from what is there.",
            number,
        ) from None


# -- where the records lead -----------------------------------------------------------


class Phase(StrEnum):
    """Where a transition stands."""

    NEW = "new"
    READY = "ready"
    STEPPING = "stepping"
    OVER = "over"


NEXT: Final[Mapping[tuple[Phase, type[Record]], Phase]] = {
    (Phase.NEW, Opened): Phase.READY,
    (Phase.READY, Begun): Phase.STEPPING,
    (Phase.STEPPING, Begun): Phase.STEPPING,
    (Phase.STEPPING, Failed): Phase.STEPPING,
    (Phase.STEPPING, Done): Phase.READY,
    (Phase.READY, Replanned): Phase.READY,
    (Phase.STEPPING, Replanned): Phase.READY,
    (Phase.READY, RolledBack): Phase.READY,
    (Phase.STEPPING, RolledBack): Phase.READY,
    (Phase.OVER, RolledBack): Phase.READY,
    (Phase.READY, Finished): Phase.OVER,
}
"""The states of a transition; what is missing cannot happen."""


class Progress:
    """A transition and how far it has come, as its journal tells."""

    def __init__(self, way: Transition, problem: Problem, id: str) -> None:
        self.origin: Final = way
        self.problem: Final = problem
        self.id: Final = id
        self.phase = Phase.NEW
        self.way = way
        self.is_back = False
        self.frozen: frozenset[str] = frozenset()
        self._begin(way)

    def _begin(self, way: Transition) -> None:
        self.way = way
        self.steps: tuple[Step, ...] = tuple(step for _, step in way.steps)
        self.done = 0
        self.failures = 0
        # What is there if every record is true.
        self.expected: Plan = way.current

    @property
    def step(self) -> Step | None:
        """The step that comes next, or was begun last."""
        return self.steps[self.done] if self.done < len(self.steps) else None

    def learn(self, record: Record) -> None:
        """Take one record in."""
        following = NEXT.get((self.phase, type(record)))
        if following is None:
            raise IllegalTransition("The transition", self.phase.value, _NAMES[type(record)])
        match record:
            case Begun(step) | Done(step) | Failed(step):
                self._step(record, step)
            case Replanned(_, document, frozen):
                self.frozen = frozenset(frozen)
                self._begin(_way_in(document))
            case RolledBack(document):
                self.is_back = True
                self._begin(_way_in(document))
            case Opened() | Finished():
                pass
        self.phase = following

    def _step(self, record: Record, number: int) -> None:
        if number != self.done or self.step is None:
            raise InterlaneError(
                f"Step {number} is in the journal where step {self.done} should be."
            )
        if isinstance(record, Failed):
            self.failures += 1
        elif isinstance(record, Done):
            self.expected = after_step(self.expected, self.step)
            self.done += 1
            self.failures = 0


def _way_in(document: dict[str, Any]) -> Transition:
    way, _, _ = read_transition(document, "the journal")
    return way


def resumed(
    way: Transition,
    problem: Problem,
    id: str,
    records: Iterable[Record],
    file: str,
) -> Progress:
    """Return the progress that a journal tells; refuse the journal of another transition."""
    progress = Progress(way, problem, id)
    for number, record in enumerate(records, 1):
        if isinstance(record, Opened) and (record.id, record.version) != (id, VERSION):
            raise InvalidFile(
                file,
                f"this journal belongs to transition {record.id}, not to {id}; name its own "
                "journal, or a new file.",
                number,
            )
        try:
            progress.learn(record)
        except InterlaneError as error:
            raise InvalidFile(file, f"the journal is damaged here ({error})", number) from None
    return progress
