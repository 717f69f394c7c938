"""Follow, for each function by itself, the advisor that has cost least of late."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.functions.advise import Advisor
from interlane.predict.arrivals.series import Floats

DECAY: Final = 0.998
"""What a slot's cost still weighs one slot later: half after some 350 slots."""


def cost_of(wanted: Floats, needs: Floats, weight: Floats | float) -> Floats:
    """Return the cost of a slot in idle replicas; a missing one is ``weight`` of them."""
    return np.asarray(weight * np.maximum(0, needs - wanted) + np.maximum(0, wanted - needs))


@dataclass(eq=False)
class Portfolio:
    """Several advisors; the first is followed until another has cost less."""

    advisors: Mapping[str, Advisor]
    weight: Floats
    """For each function, how many idle replicas a missing one is worth."""
    decay: float = DECAY
    costs_: Floats = field(init=False, repr=False)
    """One row an advisor, one column a function."""
    said_: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.costs_ = np.zeros((len(self.advisors), len(self.weight)))
        self.said_ = np.zeros_like(self.costs_)

    @property
    def leaders(self) -> NDArray[np.intp]:
        """The place of the advisor that each function follows."""
        return np.asarray(self.costs_.argmin(axis=0))

    def wanted(self) -> Floats:
        """Return what each function's leader wants."""
        self.said_ = np.stack([one.wanted() for one in self.advisors.values()])
        return np.asarray(self.said_[self.leaders, np.arange(len(self.weight))])

    def passed(self, counts: Floats, needs: Floats) -> None:
        """Add what the slot would have cost with each advisor, and tell them all."""
        self.costs_ = self.decay * self.costs_ + cost_of(self.said_, needs, self.weight)
        for one in self.advisors.values():
            one.passed(counts, needs)
