"""Whom to send away when there is no room: what it is worth to keep each function warm."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from interlane.predict.arrivals.series import Floats

AFTER_STEP: Final = 0.1
"""How far one slot moves what is known of slots that follow a request."""
AGE_STEP: Final = 0.02
"""How far one parting moves what is known of how long functions stay unasked."""
MEMORY: Final = 5_760
"""Slots over which a function's rate is known: four days of minutes."""
LATER: Final = 0.125
"""The part of that time in which a request counts as much as one in the next slot."""


class Ranking(Protocol):
    """Says which of the warm functions are worth least."""

    def worth(self, name: str, chance: float) -> float:
        """Return what it is worth to keep a function warm, given what is forecast of it."""
        ...

    def asked(self, name: str) -> None:
        """Learn of a request."""
        ...

    def parted(self, name: str) -> None:
        """Learn that a function had to go."""
        ...

    def passed(self, asked: Collection[str], chances: Mapping[str, float]) -> None:
        """Learn who was asked in the slot that ended, and what is forecast of the next."""
        ...


class _Unmoved:
    """Learns nothing from slots, nor from who has parted."""

    def parted(self, name: str) -> None:
        """Learn nothing."""

    def passed(self, asked: Collection[str], chances: Mapping[str, float]) -> None:
        """Learn nothing."""


@dataclass(eq=False)
class Recent(_Unmoved):
    """The longest unused goes first (LRU)."""

    clock_: int = 0
    _last: dict[str, int] = field(default_factory=dict)

    def worth(self, name: str, chance: float) -> float:
        """Return when the function was last asked."""
        return float(self._last.get(name, 0))

    def asked(self, name: str) -> None:
        """Note the order of requests."""
        self.clock_ += 1
        self._last[name] = self.clock_


@dataclass(eq=False)
class Frequent(_Unmoved):
    """The least often asked goes first (LFU)."""

    _asked: dict[str, int] = field(default_factory=dict)

    def worth(self, name: str, chance: float) -> float:
        """Return in how many slots the function was asked."""
        return float(self._asked.get(name, 0))

    def asked(self, name: str) -> None:
        """Count a request."""
        self._asked[name] = self._asked.get(name, 0) + 1


@dataclass(eq=False)
class GreedyDual(_Unmoved):
    """Frequency, on top of what the last one that parted was worth (GDSF; FaasCache)."""

    _asked: dict[str, int] = field(default_factory=dict)
    _worth: dict[str, float] = field(default_factory=dict)
    _floor: float = 0.0

    def worth(self, name: str, chance: float) -> float:
        """Return the worth as of the last request."""
        return self._worth.get(name, 0.0)

    def asked(self, name: str) -> None:
        """Count a request, and rank it above everything that has parted."""
        self._asked[name] = self._asked.get(name, 0) + 1
        self._worth[name] = self._floor + self._asked[name]

    def parted(self, name: str) -> None:
        """Raise the floor to what has just parted."""
        self._floor = self._worth.get(name, 0.0)


class Foreseen(_Unmoved):
    """The one that is asked last again goes first (Belady): nobody can know."""

    def __init__(self, names: Collection[str], active: Floats) -> None:
        """``active`` has one row per slot, one column per function."""
        slots = len(active)
        self._next = np.full((slots + 1, active.shape[1]), float(slots))
        for slot in range(slots - 1, -1, -1):
            self._next[slot] = np.where(active[slot] > 0, slot, self._next[slot + 1])
        self._places = {name: place for place, name in enumerate(names)}
        self._slot = 0
        self._served: set[str] = set()

    def worth(self, name: str, chance: float) -> float:
        """Return how soon the function is asked again."""
        slot = self._slot + (name in self._served)
        return -float(self._next[slot, self._places[name]])

    def asked(self, name: str) -> None:
        """Note that this slot's request is over."""
        self._served.add(name)

    def passed(self, asked: Collection[str], chances: Mapping[str, float]) -> None:
        """Go on to the next slot."""
        self._slot += 1
        self._served.clear()


@dataclass(slots=True)
class _Past:
    """What is remembered of one function."""

    slots: int = 0
    """For which it was watched."""
    rate: float = 0.0
    """Part of them in which it was asked, the newest counting most."""
    unasked: int = 0
    """Slots since its last request."""
    after: float = 1.0
    """How probable a request is in the slot after one, as told so far."""


@dataclass(eq=False)
class Hazard:
    """The least probable goes first, now and in the slots for which it would stay.

    Where there is much room, a function stays for long after its last request, and one that
    is asked often is worth more than one that was asked lately.  Where there is little, only
    the next slot counts.  How long functions stay is learned from those that part.
    """

    is_ahead: bool = False
    """Whether the forecast has seen the slot under way, and tells of the one after it."""
    age: float = 0.0
    """Slots for which those that part were not asked."""
    _past: dict[str, _Past] = field(default_factory=dict)
    _served: set[str] = field(default_factory=set)

    def worth(self, name: str, chance: float) -> float:
        """Return how probable the next request is, and how many may follow while it stays."""
        past = self._of(name)
        is_over = name in self._served and not self.is_ahead
        return (past.after if is_over else chance) + LATER * self.age * past.rate

    def asked(self, name: str) -> None:
        """Look past this slot from now on."""
        self._served.add(name)
        self._of(name).unasked = 0

    def parted(self, name: str) -> None:
        """Learn for how long functions stay."""
        self.age += AGE_STEP * (self._of(name).unasked - self.age)

    def passed(self, asked: Collection[str], chances: Mapping[str, float]) -> None:
        """Learn the slot, and what the forecast says of functions that were just asked."""
        for name, chance in chances.items():
            past = self._of(name)
            past.slots += 1
            past.rate += max(1 / past.slots, 1 / MEMORY) * ((name in asked) - past.rate)
            past.unasked += 1
            if name in self._served:
                past.after += AFTER_STEP * (chance - past.after)
        self._served.clear()

    def _of(self, name: str) -> _Past:
        return self._past.setdefault(name, _Past())

    def forget(self, name: str) -> None:
        """Remember a function no longer."""
        self._past.pop(name, None)
        self._served.discard(name)

    def snapshot(self) -> dict[str, Floats]:
        """Return what was learned, of each function and of all ('')."""
        found = {
            name: np.array([one.slots, one.rate, one.unasked, one.after])
            for name, one in self._past.items()
        }
        return {"": np.array([self.age]), **found}

    def restore(self, learned: Mapping[str, Floats]) -> None:
        """Go on from what was learned."""
        for name, values in learned.items():
            if name:
                slots, rate, unasked, after = values.tolist()
                self._past[name] = _Past(int(slots), rate, int(unasked), after)
            else:
                self.age = float(values[0])
