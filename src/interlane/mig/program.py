"""The plain integer program: how many blocks of each kind each service gets.

    min   price . y
    s.t.  gives . x >= need           of each service, and at least so many blocks
          sum of x <= supply' y       of each block
          the GPUs of a group         limited or pinned

It is right and simple, and its bound is loose by some tenths of a GPU a service; the solver
closes that for tens of services, not for hundreds.  ``exact`` does better; this is here to be
compared with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from interlane.mig.covering import Cover, Covering, Floats, covering_of, plan_of
from interlane.mig.demand import Problem
from interlane.mig.greedy import greedy_cover, no_room
from interlane.mig.plan import TOLERANCE, Effort, SolvedPlan, StopReason
from interlane.mig.pricing import cost_step, rounded_up, simple_bound
from interlane.mig.solver import ENDLESS, Column, LinearProgram
from interlane.model import InvalidInput


@dataclass(frozen=True, slots=True)
class WholeProgram:
    """The plain integer program, as textbooks would write it."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return the best plan that the solver found, and its bound."""
        if problem.survive_gpu_loss:
            raise InvalidInput(
                "Optimiser program cannot plan for the loss of a GPU; take columns or greedy."
            )
        begin_s = effort.clock()
        covering = covering_of(problem)
        step = cost_step(covering)
        model = _Model(covering)
        start = greedy_cover(covering)
        if start is not None:
            model.program.start_from(model.values(start))
        solved = model.program.run(
            effort.time_limit_s, gap=TOLERANCE if step is None else 0.999 * step
        )
        if solved.values is None and start is None:
            raise InvalidInput(no_room(problem, exists=not solved.is_infeasible))
        cover = start if solved.values is None else model.cover(solved.values)
        assert cover is not None
        plan = plan_of(problem, covering, cover)
        cost = plan.cost(problem.prices)
        proven = rounded_up(covering, solved.bound + covering.constant)
        bound = min(max(proven, simple_bound(covering)), cost)
        stopped = StopReason.OPTIMAL if cost - bound < TOLERANCE else StopReason.TIME
        seconds = effort.clock() - begin_s
        return SolvedPlan("program", plan, cost, bound, stopped, seconds, problem.notes)


class _Model:
    """The program, and the way between its columns and covers."""

    def __init__(self, covering: Covering) -> None:
        self._covering = covering
        self._pairs = np.argwhere(covering.gives > 0)
        self._counted = [
            number for number, group in enumerate(covering.groups) if group.most is not None
        ]
        self.program = LinearProgram(list(self._rows()))
        self.program.add(self._columns())
        self.program.make_whole()

    def _rows(self) -> Iterator[tuple[float, float]]:
        covering = self._covering
        # Needs are scaled to 1, so that the solver's tolerance means the same to each.
        yield from ((1.0 if need > 0 else 0.0, ENDLESS) for need in covering.needs)
        yield from ((float(least), ENDLESS) for least in covering.least)
        yield from ((0.0, ENDLESS) for _ in covering.blocks)
        for number in self._counted:
            group = covering.groups[number]
            yield float(group.least), float(group.most or 0)

    def _columns(self) -> Iterator[Column]:
        covering = self._covering
        blocks_at = 2 * covering.services
        groups_at = {
            group: blocks_at + len(covering.blocks) + at
            for at, group in enumerate(self._counted)
        }
        for set_up in covering.set_ups:
            entries = [(blocks_at + at, float(n)) for at, n in enumerate(set_up.supply) if n]
            if set_up.group in groups_at:
                entries.append((groups_at[set_up.group], 1.0))
            yield Column(set_up.price, entries)
        for row, block in self._pairs.tolist():
            need = float(covering.needs[row])
            share = float(covering.gives[row, block]) / need if need > 0 else 1.0
            counted = (covering.services + row, 1.0)
            yield Column(0.0, [(row, share), counted, (blocks_at + block, -1.0)])

    def values(self, cover: Cover) -> Floats:
        """Return a cover as values of the columns."""
        gets = cover.gets[self._pairs[:, 0], self._pairs[:, 1]]
        return np.concatenate([cover.used, gets]).astype(np.float64)

    def cover(self, values: Floats) -> Cover:
        """Return values of the columns as a cover."""
        whole = np.rint(values).astype(np.int64)
        count = len(self._covering.set_ups)
        gets = np.zeros(self._covering.gives.shape, dtype=np.int64)
        gets[self._pairs[:, 0], self._pairs[:, 1]] = whole[count:]
        return Cover(whole[:count], gets)
