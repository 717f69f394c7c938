"""What predictors answer: seconds, a band around them, and what the answer rests on."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from interlane.predict.runs import Floats, Mask, Runs

LOW, HIGH = 0.10, 0.90
"""The band: one job in ten is shorter, one in ten longer."""


class EstimateBasis(IntEnum):
    """What an estimate rests on, nearest first."""

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
        return self >= EstimateBasis.SHAPE


_WORDS = {
    EstimateBasis.GROUP_AND_SHAPE: "runs of its group with the same request",
    EstimateBasis.GROUP: "runs of its group",
    EstimateBasis.USER_AND_SHAPE: "its user's runs with the same request",
    EstimateBasis.USER: "its user's runs",
    EstimateBasis.SHAPE: "anybody's runs with the same request",
    EstimateBasis.EVERYTHING: "the middle of all runs",
}


@dataclass(frozen=True, eq=False)
class DurationEstimates:
    """One estimate per job; the band is from the tenth to the ninetieth percentile."""

    seconds: Floats
    low_s: Floats
    high_s: Floats
    basis: NDArray[np.int8]
    """Numbers of ``EstimateBasis``."""

    def __len__(self) -> int:
        return len(self.seconds)

    def where(self, mask: Mask) -> "DurationEstimates":
        """Return the estimates of a mask."""
        return DurationEstimates(
            self.seconds[mask], self.low_s[mask], self.high_s[mask], self.basis[mask]
        )


class DurationPredictor(Protocol):
    """Learns from runs that ended and estimates how long others will take.

    Follows scikit-learn: making one only stores settings, ``fit`` forgets what was learned
    before and returns the predictor, ``predict`` changes nothing.
    """

    @property
    def fallback_s(self) -> float:
        """The estimate for a job of which nothing is known."""
        ...

    def fit(self, runs: Runs) -> Self:
        """Learn from runs that ended."""
        ...

    def predict(self, runs: Runs) -> DurationEstimates:
        """Return an estimate for each run, from what is known when it is submitted."""
        ...
