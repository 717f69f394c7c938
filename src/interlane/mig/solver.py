"""HiGHS, as little of it as we need: columns, rows, one run at a time.

It is imported when a program is first made, because heuristics work without it.  It always
runs on one thread, so that the same program gives the same answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np

from interlane.mig.covering import Floats
from interlane.model import InvalidInput

ENDLESS: Final = float("inf")
LEAST_S: Final = 0.01
"""The shortest time limit that is given to a run."""


@dataclass(frozen=True, slots=True)
class Column:
    """A variable: its cost, its most, and its coefficients by row."""

    cost: float
    entries: Sequence[tuple[int, float]]
    most: float = ENDLESS


@dataclass(frozen=True, slots=True)
class Solved:
    """What a run came to."""

    values: Floats | None
    """Of the columns; None if no solution was found."""
    duals: Floats
    """Of the rows; of a linear program only."""
    objective: float
    bound: float
    is_infeasible: bool
    is_timeout: bool


class LinearProgram:
    """A program that is minimised; columns may be added between runs."""

    def __init__(self, rows: Sequence[tuple[float, float]]) -> None:
        """Take the least and the most of each row."""
        self._core: Any = _highspy()
        self._highs: Any = self._core.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        self._highs.setOptionValue("random_seed", 0)
        none = np.zeros(0, dtype=np.int32)
        self._highs.addRows(
            len(rows),
            np.array([least for least, _ in rows], dtype=np.float64),
            np.array([most for _, most in rows], dtype=np.float64),
            0,
            none,
            none,
            np.zeros(0),
        )
        self.columns = 0

    def add(self, columns: Iterable[Column]) -> None:
        """Add columns behind those that are there."""
        listed = list(columns)
        entries = [entry for column in listed for entry in column.entries]
        starts = np.cumsum([0, *(len(column.entries) for column in listed)])[:-1]
        self._highs.addCols(
            len(listed),
            np.array([column.cost for column in listed], dtype=np.float64),
            np.zeros(len(listed)),
            np.array([column.most for column in listed], dtype=np.float64),
            len(entries),
            starts.astype(np.int32),
            np.array([row for row, _ in entries], dtype=np.int32),
            np.array([value for _, value in entries], dtype=np.float64),
        )
        self.columns += len(listed)

    def make_whole(self) -> None:
        """Let every column take whole numbers only."""
        numbers = np.arange(self.columns, dtype=np.int32)
        whole = np.full(self.columns, int(self._core.HighsVarType.kInteger), dtype=np.uint8)
        self._highs.changeColsIntegrality(self.columns, numbers, whole)

    def start_from(self, values: Floats) -> None:
        """Give a solution to begin with."""
        numbers = np.arange(len(values), dtype=np.int32)
        self._highs.setSolution(len(values), numbers, values)

    def run(
        self,
        time_limit_s: float | None = None,
        *,
        gap: float = 0.0,
        enough: float | None = None,
    ) -> Solved:
        """Minimise; stop within ``gap`` of the optimum or at a cost of ``enough``."""
        highs = self._highs
        if time_limit_s is not None:
            # The solver counts the seconds of all its runs.
            limit_s = highs.getRunTime() + max(time_limit_s, LEAST_S)
            highs.setOptionValue("time_limit", limit_s)
        highs.setOptionValue("mip_rel_gap", 0.0)
        highs.setOptionValue("mip_abs_gap", gap)
        if enough is not None:
            highs.setOptionValue("objective_target", enough)
        highs.run()
        return self._solved()

    def _solved(self) -> Solved:
        status, kinds = self._highs.getModelStatus(), self._core.HighsModelStatus
        info, solution = self._highs.getInfo(), self._highs.getSolution()
        feasible = self._core.SolutionStatus.kSolutionStatusFeasible
        found = info.primal_solution_status == int(feasible)
        return Solved(
            np.array(solution.col_value) if found else None,
            np.array(solution.row_dual),
            float(info.objective_function_value),
            float(info.mip_dual_bound),
            status == kinds.kInfeasible,
            status == kinds.kTimeLimit,
        )


def _highspy() -> ModuleType:
    try:
        import highspy
    except ImportError:
        raise InvalidInput(
            "This optimiser needs HiGHS, which is not installed; "
            "pip install 'interlane[mig]', or take --optimiser greedy."
        ) from None
    return highspy
