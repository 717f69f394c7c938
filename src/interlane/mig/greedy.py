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
from interlane.mig.plan import TOLERANCE, Effort, PartitionPlan, SolvedPlan, StopReason
from interlane.mig.pricing import simple_bound
from interlane.mig.survive import surviving_plan
from interlane.model import InvalidInput

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Greedy:
    """MIG-serving's fast algorithm: add the GPU that completes most, until all is served."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return its plan, with a bound that needs no solver."""
        begin_s = effort.clock()
        covering = covering_of(problem)
        plan = greedy_plan(problem, covering)
        if plan is None:
            raise InvalidInput(no_room(problem))
        cost, bound = plan.cost(problem.prices), simple_bound(covering)
        stopped = StopReason.OPTIMAL if cost - bound < TOLERANCE else StopReason.FINISHED
        return SolvedPlan(
            "greedy", plan, cost, bound, stopped, effort.clock() - begin_s, problem.notes
        )


def no_room(problem: Problem, *, exists: bool = True) -> str:
    """Return the sentence for a search that ran out of GPUs."""
    limits = ", ".join(
        f"{offer.limit} {offer.model}" for offer in problem.offers if offer.limit is not None
    )
    what = "No plan was found" if exists else "No plan exists"
    return f"{what} within the limit of {limits}; raise a limit or offer another GPU model."


def greedy_plan(problem: Problem, covering: Covering) -> PartitionPlan | None:
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
        # Plain lists: they are changed number by number, where arrays are slow.
        self._share_list: list[list[float]] = self._shares.tolist()
        self._used = [0] * len(covering.set_ups)
        self._gets = [[0] * len(covering.blocks) for _ in covering.needs]
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
        return Cover(np.array(self._used, np.int64), np.array(self._gets, np.int64))

    def in_group(self, number: int) -> Flags:
        """Return which splits belong to a group."""
        return np.asarray(self._group == number)

    def add(self, allowed: Flags) -> bool:
        """Add the allowed GPU that is worth most for its price, unless none is worth a thing.

        A pinned GPU is there in any case, so it is added even if it is worth nothing.
        """
        split, best = self._worth_most(allowed)
        if best < 0 or (best == 0 and not self._covering.groups[self._group[split]].pinned):
            return False
        chosen = int(self._owner[split])
        given, wastes = self._given(self._split[split].tolist())
        if wastes:
            chosen, given = self._mixed(allowed, best, chosen, given)
        self._take(chosen, given)
        return True

    def _worth_most(self, allowed: Flags) -> tuple[int, float]:
        """Return the split that is worth most for its price, and that worth."""
        worth = self._worth.max(axis=0)
        value = np.where(allowed, worth[self._split].sum(axis=1) / self._price, -1.0)
        # Where both parts want the same service that is too high: it cannot take both.
        known: set[int] = set()
        while (split := int(value.argmax())) not in known and value[split] > 0:
            served = self._served(self._split[split].tolist())
            value[split] = sum(self._worth[service, part] for part, service in served)
            value[split] /= self._price[split]
            known.add(split)
        return split, float(value[split])

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
        if len(best) == 1 or len({service for _, service in best}) == len(best):
            return best
        (one, service), (other, _) = best
        without = self._worth[:, [one, other]]
        without[service] = -1.0
        rival_one, rival_other = without.argmax(axis=0).tolist()
        keeps = self._worth[service, one] + without[rival_other, 1]
        gives = without[rival_one, 0] + self._worth[service, other]
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
            self._give(service, block, count)
        for service in {service for service, _, _ in given}:
            left = self._left[service]
            self._worth[service] = left * np.minimum(self._completes[service], left)

    def _give(self, service: int, block: int, count: int) -> None:
        """Give a service blocks; those that it does not miss, or cannot use, stay empty."""
        left, share = float(self._left[service]), self._share_list[service][block]
        if share <= 0:
            return
        taken = 0
        while taken < count and left > 0:
            taken += 1
            left -= share
            if left < ENOUGH:
                left = 0.0
        self._gets[service][block] += taken
        self._left[service] = left


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
