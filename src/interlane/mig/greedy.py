"""The fast algorithm of MIG-serving: GPU by GPU, the set-up that completes most.

Each service has a completion rate ``c``, what it gets of what it needs.  A GPU is worth the sum
over services of ``(1 - c) * u``, where ``u`` is the share of the need that it supplies, and
never more than what is still missing.  The GPU that is worth most for its price is added until
every ``c`` is 1.

As in the paper, a GPU serves few services, here two, so a set-up's blocks are split in two
parts and each part goes to one service.  Near the end, when a part would give a service more
than it still misses, the blocks are also tried one by one, each to whoever gains most: the
last GPUs hold a little of everything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from interlane.mig.covering import (
    ENOUGH,
    Cover,
    Covering,
    Floats,
    SetUp,
    Whole,
    covering_of,
    plan_of,
)
from interlane.mig.demand import Problem
from interlane.mig.plan import TOLERANCE, Effort, Outcome, Plan, Stop
from interlane.mig.pricing import simple_bound
from interlane.mig.survive import surviving_plan
from interlane.model import InvalidInput

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Greedy:
    """MIG-serving's fast algorithm: add the GPU that completes most, until all is served."""

    def solve(self, problem: Problem, effort: Effort) -> Outcome:
        """Return its plan, with a bound that needs no solver."""
        begin_s = effort.clock()
        covering = covering_of(problem)
        plan = greedy_plan(problem, covering)
        if plan is None:
            raise InvalidInput(no_room(problem))
        cost, bound = plan.cost(problem.prices), simple_bound(covering)
        stopped = Stop.OPTIMAL if cost - bound < TOLERANCE else Stop.FINISHED
        return Outcome(
            "greedy", plan, cost, bound, stopped, effort.clock() - begin_s, problem.notes
        )


def no_room(problem: Problem, *, exists: bool = True) -> str:
    """Return the sentence for a search that ran out of GPUs."""
    limits = ", ".join(
        f"{offer.limit} {offer.model}" for offer in problem.offers if offer.limit is not None
    )
    what = "No plan was found" if exists else "No plan exists"
    return f"{what} within the limit of {limits}; raise a limit or offer another GPU model."


def greedy_plan(problem: Problem, covering: Covering) -> Plan | None:
    """Return the greedy plan, or None if the GPUs run out."""
    if covering.survives:
        return surviving_plan(problem, covering, greedy_cover)
    cover = greedy_cover(covering)
    return None if cover is None else plan_of(problem, covering, cover)


def greedy_cover(covering: Covering) -> Cover | None:
    """Return a cover GPU by GPU, or None if the GPUs run out before all is served."""
    fill = _Fill(covering)
    for number, group in enumerate(covering.groups):
        for _ in range(group.least):
            fill.add(fill.in_group(number))
    while not fill.is_done:
        if not fill.add(fill.open):
            return None
    return fill.cover


@dataclass(frozen=True, slots=True)
class _Part:
    """Some kinds of a set-up's blocks, all of which go to one service."""

    blocks: tuple[int, ...]
    counts: tuple[int, ...]


def _splits(set_up: SetUp) -> Iterator[tuple[_Part, ...]]:
    """Yield the ways to give a set-up's blocks to two services or to one."""
    kinds = [block for block, count in enumerate(set_up.supply) if count]
    if set_up.shared is not None or not kinds:
        yield tuple(_Part((block,), (1,)) for block in kinds)
        return
    # The first kind always goes to the first service, so that no split comes twice.
    for size in range(len(kinds)):
        for others in combinations(kinds[1:], size):
            first = (kinds[0], *others)
            second = tuple(kind for kind in kinds if kind not in first)
            yield tuple(
                _Part(part, tuple(set_up.supply[block] for block in part))
                for part in (first, second)
                if part
            )


_Given = list[tuple[int, int, int]]
"""Service, block, count."""


class _Fill:
    """GPUs added so far, and what every further one would be worth."""

    def __init__(self, covering: Covering) -> None:
        self._covering = covering
        self._shares = shares_of(covering)
        asked = (covering.needs > 0) | (covering.least > 0)
        self._left = np.where(asked, 1.0, 0.0)  # 1 - c of each service
        self._free = [group.most for group in covering.groups]
        self._used: Whole = np.zeros(len(covering.set_ups), dtype=np.int64)
        self._gets: Whole = np.zeros(covering.gives.shape, dtype=np.int64)
        # Distinct parts are numbered; a split is a row of them, filled up with "nothing".
        self._parts: list[_Part] = []
        self._owner, self._split = self._index()
        self._group = np.array([one.group for one in covering.set_ups])[self._owner]
        self._price = covering.prices[self._owner]
        self.open = np.array(
            [not covering.groups[one].pinned and self._free[one] != 0 for one in self._group]
        )
        # What each part would complete of each service, and what that is worth now.
        self._completes = self._shares @ self._weights()
        self._columns = np.arange(len(self._parts) + 1)
        self._paired = np.flatnonzero(
            (self._split[:, 1] < len(self._parts))
            & (self._split[:, 2:] == len(self._parts)).all(1)
        )
        self._pairs = self._split[self._paired, :2]
        left = self._left[:, None]
        self._worth = left * np.minimum(self._completes, left)

    def _index(self) -> tuple[Whole, Whole]:
        known: dict[_Part, int] = {}
        owners, rows = [], []
        for number, set_up in enumerate(self._covering.set_ups):
            for split in _splits(set_up):
                owners.append(number)
                rows.append([known.setdefault(part, len(known)) for part in split])
        self._parts = list(known)
        widest = max(2, *(len(row) for row in rows))
        filled = [row + [len(known)] * (widest - len(row)) for row in rows]
        return np.array(owners), np.array(filled)

    def _weights(self) -> Floats:
        weights = np.zeros((self._shares.shape[1], len(self._parts) + 1))
        for number, part in enumerate(self._parts):
            weights[list(part.blocks), number] = part.counts
        return weights

    @property
    def is_done(self) -> bool:
        """Whether every service has what it needs."""
        return not self._left.any()

    @property
    def cover(self) -> Cover:
        """What has been added so far."""
        return Cover(self._used, self._gets)

    def in_group(self, number: int) -> Flags:
        """Return which splits belong to a group."""
        return np.asarray(self._group == number)

    def add(self, allowed: Flags) -> bool:
        """Add the allowed GPU that is worth most for its price, unless none is worth a thing.

        A pinned GPU is there in any case, so it is added even if it is worth nothing.
        """
        value = np.where(allowed, self._values() / self._price, -1.0)
        split = int(value.argmax())
        best = float(value[split])
        if best < 0 or (best == 0 and not self._covering.groups[self._group[split]].pinned):
            return False
        chosen = int(self._owner[split])
        given, wastes = self._given(self._split[split].tolist())
        if wastes:
            chosen, given = self._mixed(allowed, best, chosen, given)
        self._take(chosen, given)
        return True

    def _values(self) -> Floats:
        """Return what every split is worth, its parts with different services."""
        first = self._worth.argmax(axis=0)
        best = self._worth[first, self._columns]
        values: Floats = best[self._split].sum(axis=1)
        one, other = self._pairs[:, 0], self._pairs[:, 1]
        clash = first[one] == first[other]
        # Two parts want the same service: one of them must take its second best.
        self._worth[first, self._columns] = -1.0
        second = np.maximum(self._worth.max(axis=0), 0.0)
        self._worth[first, self._columns] = best
        apart = np.maximum(best[one] + second[other], second[one] + best[other])
        values[self._paired] = np.where(clash, apart, values[self._paired])
        return values

    def _given(self, split: list[int]) -> tuple[_Given, bool]:
        """Return who gets a split's blocks, and whether anybody gets more than is missing."""
        given: _Given = []
        wastes = False
        for number, service in self._served(split):
            part = self._parts[number]
            wastes |= bool(self._completes[service, number] > self._left[service])
            given += [
                (service, block, count)
                for block, count in zip(part.blocks, part.counts, strict=True)
            ]
        return given, wastes

    def _served(self, split: list[int]) -> list[tuple[int, int]]:
        """Return the parts of a split, each with the service that gets it."""
        parts = [number for number in split if number < len(self._parts)]
        best = [(number, int(self._worth[:, number].argmax())) for number in parts]
        if len({service for _, service in best}) == len(best):
            return best
        (one, service), (other, _) = best
        without = self._worth.copy()
        without[service] = -1.0
        rival_one, rival_other = int(without[:, one].argmax()), int(without[:, other].argmax())
        keeps = self._worth[service, one] + without[rival_other, other]
        gives = without[rival_one, one] + self._worth[service, other]
        if keeps >= gives:
            return [(one, service), (other, rival_other)]
        return [(one, rival_one), (other, service)]

    def _mixed(
        self, allowed: Flags, best: float, chosen: int, given: _Given
    ) -> tuple[int, _Given]:
        """Try every set-up with its blocks handed out one by one; return what is worth most."""
        for number in dict.fromkeys(self._owner[allowed].tolist()):
            value, one_by_one = self._one_by_one(self._covering.set_ups[number])
            if value / self._covering.prices[number] > best * (1 + ENOUGH):
                best = value / self._covering.prices[number]
                chosen, given = number, one_by_one
        return chosen, given

    def _one_by_one(self, set_up: SetUp) -> tuple[float, _Given]:
        left = self._left.copy()
        given: _Given = []
        value = 0.0
        for block in sorted(
            (block for block, count in enumerate(set_up.supply) if count),
            key=lambda one: -float(self._shares[:, one].max()),
        ):
            for _ in range(set_up.supply[block]):
                gains = self._left * np.minimum(self._shares[:, block], left)
                service = int(gains.argmax())
                if gains[service] <= 0:
                    break
                value += float(gains[service])
                left[service] -= min(left[service], self._shares[service, block])
                given.append((service, block, 1))
        return value, given

    def _take(self, chosen: int, given: _Given) -> None:
        self._used[chosen] += 1
        group = self._covering.set_ups[chosen].group
        free = self._free[group]
        if free is not None:
            self._free[group] = free - 1
            if free == 1:
                self.open &= self._group != group
        for service, block, count in given:
            # A block that cannot serve, or that its service no longer misses, stays empty.
            for _ in range(count):
                if self._left[service] <= 0 or self._shares[service, block] <= 0:
                    break
                self._gets[service, block] += 1
                self._left[service] -= self._shares[service, block]
                if self._left[service] < ENOUGH:
                    self._left[service] = 0.0
        for service in {service for service, _, _ in given}:
            left = self._left[service]
            self._worth[service] = left * np.minimum(self._completes[service], left)


def shares_of(covering: Covering) -> Floats:
    """Return which share of each service's need one block of each kind completes.

    A service that needs ``k`` instances gets at most ``1/k`` of its need from each, so that
    it is complete only with ``k``.  One that must do without any one GPU needs its largest
    instance once more.
    """
    needs = covering.needs
    if covering.survives:
        needs = needs + covering.gives.max(axis=1)
    most = 1.0 / np.maximum(covering.least, 1)
    endless = np.where(covering.gives > 0, np.inf, 0.0)
    shares = np.divide(
        covering.gives, needs[:, None], out=endless, where=np.asarray(needs[:, None] > 0)
    )
    return np.minimum(shares, most[:, None])
