"""Deployments, as tree search and the genetic algorithm handle them: a list of filled GPUs.

A cover counts blocks; which GPU holds which is settled at the end.  These two need to take
single GPUs away and to see what that costs, so they list them.  A ``Board`` has the problem in
arrays and knows the way to covers and back.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.mig import compiled
from interlane.mig.compiled import NOBODY, CoveringTables
from interlane.mig.covering import Cover, Covering, Floats, Whole
from interlane.mig.greedy import shares_of
from interlane.mig.plan import Effort
from interlane.mig.pricing import asks_of, bound_by, fair_prices, simple_prices

_HELD: Final = 1e-7
"""Price of a GPU that is there in any case: it is taken before all others."""

_ENDLESS: Final = 1 << 40
"""GPUs of a group without a limit."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Filled GPUs."""

    set_ups: Whole
    given: Whole
    """GPUs by slots: the service, or nobody."""
    left: Floats
    """What each service still misses; all 0 if it serves."""
    cost: float
    value: float
    """Less is better: the cost, less what is empty or given beyond need, plus a forbidding
    price of what is missing."""

    @property
    def serves(self) -> bool:
        """Whether every service has what it needs."""
        return not self.left.any()


class Board:
    """A covering in arrays."""

    def __init__(self, covering: Covering) -> None:
        self._covering = covering
        worth = _block_worth(covering)
        share = shares_of(covering)
        pinned = np.array([bool(group.pinned) for group in covering.groups])
        group = np.array([one.group for one in covering.set_ups])
        with np.errstate(divide="ignore"):
            need_worth = (worth / share).min(axis=1, initial=np.inf, where=share > 0)
        need_worth[~np.isfinite(need_worth)] = 0.0
        self.tables = CoveringTables(
            _slots(covering, worth),
            group,
            np.where(pinned[group], _HELD, covering.prices),
            share,
            need_worth,
            worth,
        )
        asked = (covering.needs > 0) | (covering.least > 0)
        self.all_left: Floats = np.where(asked, 1.0, 0.0)
        self.all_free: Whole = np.array(
            [_ENDLESS if one.most is None else max(one.most, 0) for one in covering.groups]
        )
        self.dear = 10.0 * float(covering.prices.max())
        self.least_price = float(covering.prices.min())

    @property
    def width(self) -> int:
        """Slots of a GPU at most."""
        return int(self.tables.slots.shape[1])

    def free_beside(self, set_ups: Whole) -> Whole:
        """Return how many GPUs of each group are left beside some."""
        used = np.bincount(self.tables.group[set_ups], minlength=len(self.all_free))
        return np.asarray(self.all_free - used)

    def deployment(self, set_ups: Whole, given: Whole) -> Deployment:
        """Return a deployment, without what nobody needs."""
        # Roomy GPUs first, that they may become empty.
        order = np.argsort(-compiled.room(self.tables, set_ups, given), kind="stable")
        given = given.copy()
        compiled.trim(self.tables, set_ups, given, order)
        busy = (given != NOBODY).any(axis=1)
        set_ups, given = set_ups[busy], given[busy]
        left = self.all_left - compiled.served(self.tables, set_ups, given)
        over = -float(np.minimum(left, 0.0) @ self.tables.worth)
        left[left < 1e-9] = 0.0
        cost = float(self.tables.price[set_ups].sum())
        empty = float(compiled.room(self.tables, set_ups, given).sum())
        missing = float((left * self.tables.worth).sum()) + float((left > 0).sum())
        value = cost - empty - compiled.OVER * over + self.dear * missing
        return Deployment(set_ups, given, left, cost, value)

    def cover(self, deployment: Deployment) -> Cover:
        """Return a deployment as a cover."""
        count = len(self._covering.set_ups)
        used: Whole = np.bincount(deployment.set_ups, minlength=count).astype(np.int64)
        gets: Whole = np.zeros(self._covering.gives.shape, dtype=np.int64)
        blocks = self.tables.slots[deployment.set_ups]
        held = deployment.given != NOBODY
        np.add.at(gets, (deployment.given[held], blocks[held]), 1)
        for number, group in enumerate(self._covering.groups):
            # Pinned GPUs that serve nothing new are there all the same.
            mine = np.flatnonzero(self.tables.group == number)
            if group.pinned:
                used[mine[0]] += group.least - used[mine].sum()
        return Cover(used, gets)

    def from_cover(self, cover: Cover) -> Deployment:
        """Return a cover as a deployment, its blocks handed out GPU by GPU."""
        waiting = [
            np.repeat(np.arange(len(counts)), counts).tolist()[::-1] for counts in cover.gets.T
        ]
        set_ups = np.repeat(np.arange(len(cover.used)), cover.used)
        given = np.full((len(set_ups), self.width), NOBODY, dtype=np.int64)
        for gpu, set_up in enumerate(set_ups.tolist()):
            for at, block in enumerate(self.tables.slots[set_up].tolist()):
                if block != NOBODY and waiting[block]:
                    given[gpu, at] = waiting[block].pop()
        return self.deployment(set_ups, given)


def _slots(covering: Covering, worth: Floats) -> Whole:
    """Return the blocks of each set-up one by one, dear ones first."""
    rows = [
        sorted(np.repeat(np.arange(len(supply)), supply).tolist(), key=lambda at: -worth[at])
        for supply in covering.supply
    ]
    slots = np.full((len(rows), max(1, *map(len, rows))), NOBODY, dtype=np.int64)
    for number, row in enumerate(rows):
        slots[number, : len(row)] = row
    return slots


def _block_worth(covering: Covering) -> Floats:
    """Return the simple prices of blocks that give the best bound."""
    asks = asks_of(covering)
    return max(
        (fair_prices(covering, prices) for prices in simple_prices(covering)),
        key=lambda fair: bound_by(covering, asks, fair),
    )


class Watch:
    """Tells whether the time of an effort is over."""

    def __init__(self, effort: Effort) -> None:
        """Start now."""
        self._clock = effort.clock
        begin_s = effort.clock()
        limit_s = effort.time_limit_s
        self._end_s = None if limit_s is None else begin_s + limit_s

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._end_s is not None and self._clock() >= self._end_s
