"""What predictors answer: seconds, a band around them, and what the answer rests on."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from interlane.predict.runs import Floats, Mask, Runs

LOW, HIGH = 0.10, 0.90
"""The band: one job in ten is shorter, one in ten longer."""


class Basis(IntEnum):
    """What a guess rests on, nearest first."""

    GROUP_AND_SHAPE = 0
    GROUP = 1
    USER_AND_SHAPE = 2
    USER = 3
    SHAPE = 4
    EVERYTHING = 5

    @property
    def words(self) -> str:
        """The basis as people read it."""
        return _WORDS[self]

    @property
    def is_fallback(self) -> bool:
        """Whether nothing is known of the job's group or user."""
        return self >= Basis.SHAPE


_WORDS = {
    Basis.GROUP_AND_SHAPE: "runs of its group with the same request",
    Basis.GROUP: "runs of its group",
    Basis.USER_AND_SHAPE: "its user's runs with the same request",
    Basis.USER: "its user's runs",
    Basis.SHAPE: "anybody's runs with the same request",
    Basis.EVERYTHING: "the middle of all runs",
}


@dataclass(frozen=True, eq=False)
class Guesses:
    """One guess a job; the band is from the tenth to the ninetieth percentile."""

    seconds: Floats
    low_s: Floats
    high_s: Floats
    basis: NDArray[np.int8]
    """Numbers of ``Basis``."""

    def __len__(self) -> int:
        return len(self.seconds)

    def where(self, mask: Mask) -> "Guesses":
        """Return the guesses of a mask."""
        return Guesses(
            self.seconds[mask], self.low_s[mask], self.high_s[mask], self.basis[mask]
        )


class Predictor(Protocol):
    """Learns from runs that ended and guesses how long others will take.

    Follows scikit-learn: making one only stores settings, ``fit`` forgets what was learned
    before and returns the predictor, ``predict`` changes nothing.
    """

    @property
    def fallback_s(self) -> float:
        """The guess for a job of which nothing is known."""
        ...

    def fit(self, runs: Runs) -> Self:
        """Learn from runs that ended."""
        ...

    def predict(self, runs: Runs) -> Guesses:
        """Return a guess for each run, from what is known when it is handed in."""
        ...
