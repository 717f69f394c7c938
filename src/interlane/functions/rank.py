"""Whom to send away when there is no room: what it is worth to keep each function warm."""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from interlane.predict.arrivals.live import Forecaster
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

    def worth(self, place: int) -> float:
        """Return what it is worth to keep a function warm."""
        ...

    def asked(self, place: int) -> None:
        """Learn of a request."""
        ...

    def parted(self, place: int) -> None:
        """Learn that a function had to go."""
        ...

    def passed(self, counts: Floats) -> None:
        """Learn the requests of the slot that ended."""
        ...


class _Unmoved:
    """Learns nothing from slots, nor from who has parted."""

    def parted(self, place: int) -> None:
        """Learn nothing."""

    def passed(self, counts: Floats) -> None:
        """Learn nothing."""


@dataclass(eq=False)
class Recent(_Unmoved):
    """The longest unused goes first (LRU)."""

    functions: int
    clock_: int = 0

    def __post_init__(self) -> None:
        self._last = [0] * self.functions

    def worth(self, place: int) -> float:
        """Return when the function was last asked."""
        return float(self._last[place])

    def asked(self, place: int) -> None:
        """Note the order of requests."""
        self.clock_ += 1
        self._last[place] = self.clock_


@dataclass(eq=False)
class Frequent(_Unmoved):
    """The least often asked goes first (LFU)."""

    functions: int

    def __post_init__(self) -> None:
        self._asked = [0] * self.functions

    def worth(self, place: int) -> float:
        """Return in how many slots the function was asked."""
        return float(self._asked[place])

    def asked(self, place: int) -> None:
        """Count a request."""
        self._asked[place] += 1


@dataclass(eq=False)
class GreedyDual(_Unmoved):
    """Frequency, on top of what the last one that parted was worth (GDSF; FaasCache)."""

    functions: int

    def __post_init__(self) -> None:
        self._asked = [0] * self.functions
        self._worth = [0.0] * self.functions
        self._floor = 0.0

    def worth(self, place: int) -> float:
        """Return the worth as of the last request."""
        return self._worth[place]

    def asked(self, place: int) -> None:
        """Count a request, and rank it above everything that has parted."""
        self._asked[place] += 1
        self._worth[place] = self._floor + self._asked[place]

    def parted(self, place: int) -> None:
        """Raise the floor to what has just parted."""
        self._floor = self._worth[place]


@dataclass(eq=False)
class Foreseen(_Unmoved):
    """The one that is asked last again goes first (Belady): nobody can know."""

    active: Floats
    """One row per slot, one column per function."""

    def __post_init__(self) -> None:
        slots = len(self.active)
        self._next = np.full((slots + 1, self.active.shape[1]), float(slots))
        for slot in range(slots - 1, -1, -1):
            self._next[slot] = np.where(self.active[slot] > 0, slot, self._next[slot + 1])
        self._slot = 0
        self._served: set[int] = set()

    def worth(self, place: int) -> float:
        """Return how soon the function is asked again."""
        slot = self._slot + (place in self._served)
        return -float(self._next[slot, place])

    def asked(self, place: int) -> None:
        """Note that this slot's request is over."""
        self._served.add(place)

    def passed(self, counts: Floats) -> None:
        """Go on to the next slot."""
        self._slot += 1
        self._served.clear()


class Later:
    """What keeping a function is worth beyond the next slot: the requests until it parts.

    Where there is much room, a function stays for long after its last request, and one that
    is asked often is worth more than one that was asked lately.  Where there is little, only
    the next slot counts.  How long functions stay is learned from those that part.
    """

    def __init__(self, functions: int) -> None:
        self._rates = np.zeros(functions)
        self._asked = np.zeros(functions)
        """The slot of each function's last request."""
        self._slot = 0
        self._age = 0.0
        """Slots for which those that part were not asked."""

    def worth(self, place: int) -> float:
        """Return the requests that are expected after the next slot, while it stays."""
        return float(LATER * self._age * self._rates[place])

    def asked(self, place: int) -> None:
        """Learn of a request."""
        self._asked[place] = self._slot

    def parted(self, place: int) -> None:
        """Learn that a function had to go."""
        self._age += AGE_STEP * (self._slot - self._asked[place] - self._age)

    def passed(self, counts: Floats) -> None:
        """Learn the requests of the slot that ended."""
        self._slot += 1
        step = max(1 / self._slot, 1 / MEMORY)
        self._rates += step * ((counts > 0) - self._rates)


@dataclass(eq=False)
class Hazard:
    """The least probable goes first, now and in the slots for which it would stay."""

    forecast: Forecaster
    is_ahead: bool = False
    """Whether the forecast has seen the slot under way, and tells of the one after it."""

    def __post_init__(self) -> None:
        self._chances = self.forecast.chances()
        self._after = np.ones(len(self._chances))
        """How probable a request is in the slot after one, as told so far."""
        self._later = Later(len(self._chances))
        self._served: set[int] = set()

    def worth(self, place: int) -> float:
        """Return how probable the next request is, and how many may follow."""
        is_over = place in self._served and not self.is_ahead
        told = self._after if is_over else self._chances
        return float(told[place]) + self._later.worth(place)

    def asked(self, place: int) -> None:
        """Look past this slot from now on."""
        self._served.add(place)
        self._later.asked(place)

    def parted(self, place: int) -> None:
        """Learn for how long functions stay."""
        self._later.parted(place)

    def passed(self, counts: Floats) -> None:
        """Learn the slot, and what the forecast says of functions that were just asked."""
        self.forecast.passed(counts)
        self._later.passed(counts)
        self._chances = self.forecast.chances()
        for place in self._served:
            self._after[place] += AFTER_STEP * (self._chances[place] - self._after[place])
        self._served.clear()
