"""The journal of a transition: what was begun, what is over, what went wrong, in order.

A record is written before its step is begun (``StepBegun``) and after it is over (``Done``).
Who reads the journal after a crash therefore knows the fate of every step but those under way,
at most one on each GPU, and theirs can be seen by looking at the GPUs.  ``TransitionProgress``
is where the records lead: which steps are over, which were begun, and which may begin.

A journal is text, one record a line: JSON with a checksum of itself.  A last line without its
end is what a crash in the middle of writing leaves, and is passed over; any other line that
does not match its checksum means that the journal is damaged.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any, Final
from zlib import crc32

from interlane.mig.demand import Problem
from interlane.mig.plan import PartitionPlan
from interlane.mig.transition.documents import read_transition
from interlane.mig.transition.steps import Transition, TransitionStep, after_step, awaited
from interlane.model import IllegalTransition, InterlaneError, InvalidFile

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Opened:
    """The journal belongs to this transition."""

    id: str
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class StepBegun:
    """A step is about to be carried out; nobody knows yet whether it was."""

    step: int


@dataclass(frozen=True, slots=True)
class Done:
    """A step is over."""

    step: int


@dataclass(frozen=True, slots=True)
class StepFailure:
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
class TransitionFinished:
    """Everything is where the way leads."""


Record = Opened | StepBegun | Done | StepFailure | Replanned | RolledBack | TransitionFinished

_RECORDS: Final[Mapping[str, type[Record]]] = {
    "opened": Opened,
    "begun": StepBegun,
    "done": Done,
    "failed": StepFailure,
    "replanned": Replanned,
    "rolled back": RolledBack,
    "finished": TransitionFinished,
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


class JournalPhase(StrEnum):
    """Where a transition stands."""

    NEW = "new"
    UNDER_WAY = "under way"
    OVER = "over"


NEXT: Final[Mapping[tuple[JournalPhase, type[Record]], JournalPhase]] = {
    (JournalPhase.NEW, Opened): JournalPhase.UNDER_WAY,
    (JournalPhase.UNDER_WAY, StepBegun): JournalPhase.UNDER_WAY,
    (JournalPhase.UNDER_WAY, StepFailure): JournalPhase.UNDER_WAY,
    (JournalPhase.UNDER_WAY, Done): JournalPhase.UNDER_WAY,
    (JournalPhase.UNDER_WAY, Replanned): JournalPhase.UNDER_WAY,
    (JournalPhase.UNDER_WAY, RolledBack): JournalPhase.UNDER_WAY,
    (JournalPhase.OVER, RolledBack): JournalPhase.UNDER_WAY,
    (JournalPhase.UNDER_WAY, TransitionFinished): JournalPhase.OVER,
}
"""The states of a transition; what is missing cannot happen."""


class TransitionProgress:
    """A transition and how far it has come, as its journal tells."""

    def __init__(self, way: Transition, problem: Problem, id: str) -> None:
        self.origin: Final = way
        self.problem: Final = problem
        self.id: Final = id
        self.phase = JournalPhase.NEW
        self.way = way
        self.is_back = False
        self.frozen: frozenset[str] = frozenset()
        self._begin(way)

    def _begin(self, way: Transition) -> None:
        self.way = way
        self.steps: tuple[TransitionStep, ...] = tuple(step for _, step in way.steps)
        # Steps that were begun and are not over, with how often each has failed.
        self.begun: dict[int, int] = {}
        # What is there if every record is true, and nothing of what was begun has happened.
        self.expected: PartitionPlan = way.current
        # Each action's steps that are not over, and the actions that it waits for.
        numbers = count()
        self._left = [[next(numbers) for _ in action.steps] for action in way.actions]
        self._awaited = awaited(way.actions)

    @property
    def ready(self) -> list[int]:
        """Steps that may begin now; no two of them, nor of those begun, are on one GPU."""
        return [
            left[0]
            for left, before in zip(self._left, self._awaited, strict=True)
            if left and left[0] not in self.begun and not any(self._left[n] for n in before)
        ]

    def learn(self, record: Record) -> None:
        """Take one record in."""
        following = NEXT.get((self.phase, type(record)))
        if following is None:
            raise IllegalTransition("The transition", self.phase.value, _NAMES[type(record)])
        match record:
            case StepBegun(step) | Done(step) | StepFailure(step):
                self._step(record, step)
            case Replanned(_, document, frozen):
                self.frozen = frozenset(frozen)
                self._begin(_way_in(document))
            case RolledBack(document):
                self.is_back = True
                self._begin(_way_in(document))
            case TransitionFinished():
                if any(self._left):
                    raise InterlaneError("Steps are left where all should be over.")
            case Opened():
                pass
        self.phase = following

    def _step(self, record: Record, number: int) -> None:
        is_begun = number in self.begun
        if not is_begun and not (isinstance(record, StepBegun) and number in self.ready):
            raise InterlaneError(f"Step {number} is in the journal before its time.")
        if isinstance(record, StepBegun):
            self.begun.setdefault(number, 0)
        elif isinstance(record, StepFailure):
            self.begun[number] += 1
        else:
            self.expected = after_step(self.expected, self.steps[number])
            del self.begun[number]
            next(left for left in self._left if number in left).remove(number)


def _way_in(document: dict[str, Any]) -> Transition:
    way, _, _ = read_transition(document, "the journal")
    return way


def resumed(
    way: Transition,
    problem: Problem,
    id: str,
    records: Iterable[Record],
    file: str,
) -> TransitionProgress:
    """Return the progress that a journal tells; refuse the journal of another transition."""
    progress = TransitionProgress(way, problem, id)
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
