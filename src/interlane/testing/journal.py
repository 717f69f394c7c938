"""The journal: every event that a scheduler learned and every action it decided, in order.

The scheduler is deterministic, so a journal fed to a fresh one must give the same actions:
``replay`` says where it does not.  Tests keep journals of schedulers that no server drives;
``interlane.live.replay`` plays the logs of servers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from interlane.kernel.rest import Decides, Wrapper
from interlane.model import Action, Event


@dataclass(frozen=True, slots=True)
class Learned:
    """The scheduler was told an event."""

    at_s: float
    event: Event


@dataclass(frozen=True, slots=True)
class Decided:
    """The scheduler was asked, and decided this."""

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
class JournalDifference:
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


def replay(journal: Iterable[Entry], fresh: Decides) -> JournalDifference | None:
    """Feed a journal to a fresh scheduler; return the first difference, or None."""
    for number, entry in enumerate(journal):
        match entry:
            case Learned(at_s, event):
                fresh.learn(event, at_s)
            case Decided(at_s, recorded):
                replayed = fresh.decide(at_s)
                if replayed != recorded:
                    return JournalDifference(number, at_s, recorded, replayed)
    return None


def _words(actions: tuple[Action, ...]) -> str:
    return "; ".join(str(action) for action in actions) or "nothing"
