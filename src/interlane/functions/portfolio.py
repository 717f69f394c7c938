"""Follow, for each function by itself, the advisors that have cost least of late.

Advisors that are almost as cheap as the cheapest are heard, too: what several of them say
taken together is seldom as wrong as one of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np

from interlane.functions.advise import Advisor
from interlane.predict.arrivals.series import Floats

DECAY: Final = 0.998
"""What a slot's cost still weighs after another that cost something: half after some 350."""

SHARP: Final = 20.0
"""How fast advice counts less with what it costs more than the cheapest, as a part of that."""

AHEAD: Final = 0.2
"""What the others seem to have cost at first, as a part of a missing replica."""


def cost_of(wanted: Floats, needs: Floats, weight: Floats | float) -> Floats:
    """Return the cost of a slot in idle replicas; a missing one is ``weight`` of them."""
    return np.asarray(weight * np.maximum(0, needs - wanted) + np.maximum(0, wanted - needs))


@dataclass(eq=False)
class Portfolio:
    """Several advisors; the first is followed until others have cost less."""

    LEARNED: ClassVar = ("costs_", "lead_", "said_")
    advisors: Mapping[str, Advisor]
    weight: Floats
    """For each function, how many idle replicas a missing one is worth."""
    decay: float = DECAY
    costs_: Floats = field(init=False, repr=False)
    """One row an advisor, one column per function."""
    said_: Floats = field(init=False, repr=False)
    lead_: Floats = field(init=False, repr=False)
    """What is left of ``AHEAD``: forgotten as costs are, at the present price of a miss."""

    def __post_init__(self) -> None:
        self.costs_ = np.zeros((len(self.advisors), len(self.weight)))
        self.lead_ = np.full(len(self.weight), AHEAD)
        self.said_ = np.zeros_like(self.costs_)

    @property
    def parts(self) -> Mapping[str, Advisor]:
        """What learns inside it."""
        return self.advisors

    @property
    def shares(self) -> Floats:
        """How much each function hears each advisor; a column adds up to 1."""
        costs = self.costs_.copy()
        costs[1:] += self.lead_ * self.weight
        least = costs.min(axis=0)
        heard = np.exp(-SHARP * (costs - least) / (least + self.weight))
        return np.asarray(heard / heard.sum(axis=0))

    def wanted(self) -> Floats:
        """Return what advisors want for each function, by how much they are heard."""
        self.said_ = np.stack([one.wanted() for one in self.advisors.values()])
        return np.asarray(np.round((self.shares * self.said_).sum(axis=0)))

    def passed(self, counts: Floats, needs: Floats) -> None:
        """Add what the slot would have cost with each advisor, and tell them all.

        A slot in which all were right tells nothing, and nothing is forgotten for it: else
        all would be heard alike again after a long rest.
        """
        spent = cost_of(self.said_, needs, self.weight)
        kept = np.where(spent.any(axis=0), self.decay, 1.0)
        self.lead_ = kept * self.lead_
        self.costs_ = kept * self.costs_ + spent
        for one in self.advisors.values():
            one.passed(counts, needs)
