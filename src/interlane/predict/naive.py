"""Predictors that anybody could write on one line; every report shows them beside ours."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from interlane.predict import bands
from interlane.predict.bands import Bases
from interlane.predict.estimates import DurationEstimates, EstimateBasis
from interlane.predict.history import events_of
from interlane.predict.runs import Floats, Runs, in_time_order, must_have_ended

Tally = dict[str, list[float]]
"""Key -> what is kept of its runs."""


@dataclass
class _Naive(ABC):
    """Keeps something of the runs of each group or user, and falls back from near to far."""

    by_group_: Tally = field(default_factory=dict, repr=False)
    by_user_: Tally = field(default_factory=dict, repr=False)
    offsets_: Floats = field(default_factory=bands.no_offsets, repr=False)
    fallback_s: float = 1.0
    """The estimate for a job of which nothing is known."""

    def fit(self, runs: Runs) -> Self:
        """Forget everything and learn from runs that ended, in the order of time."""
        must_have_ended(runs)
        runs = in_time_order(runs)
        self.by_group_, self.by_user_ = {}, {}
        self.fallback_s = self._typical_s(runs)
        told = self._follow(runs)
        held = slice(len(runs) - len(runs) // 5, len(runs))
        middle, basis = told[0][held], told[1][held]
        self.offsets_ = bands.offsets(runs.log_s[held], middle, middle, basis)
        return self

    def predict(self, runs: Runs) -> DurationEstimates:
        """Estimate from what is known now."""
        told = [self._estimate(*who) for who in zip(runs.group, runs.user, strict=True)]
        return self._banded(np.array([s for s, _ in told]), np.array([b for _, b in told]))

    def follow(self, runs: Runs) -> DurationEstimates:
        """Estimate each run when it is submitted, and learn from it when it ends."""
        middle, basis = self._follow(runs)
        return self._banded(np.exp(middle), basis)

    def _follow(self, runs: Runs) -> tuple[Floats, Bases]:
        jobs = len(runs)
        seconds, basis = np.empty(jobs), np.empty(jobs, np.int8)
        who = list(zip(runs.group, runs.user, strict=True))
        lengths_s = runs.duration_s.tolist()
        for event in events_of(runs).tolist():
            if event < jobs:
                seconds[event], basis[event] = self._estimate(*who[event])
            else:
                group, user = who[event - jobs]
                self._note(group, user, lengths_s[event - jobs])
        return np.log(np.maximum(seconds, 1.0)), basis

    def _banded(self, seconds: Floats, basis: Floats | Bases) -> DurationEstimates:
        middle, kinds = np.log(np.maximum(seconds, 1.0)), basis.astype(np.int8)
        low, high = (middle + self.offsets_[kinds, edge] for edge in (0, 1))
        return bands.estimates(middle, low, high, kinds)

    def _typical_s(self, runs: Runs) -> float:
        return float(np.median(runs.duration_s))

    def _estimate(self, group: str, user: str) -> tuple[float, EstimateBasis]:
        if group and group in self.by_group_:
            return self._said(self.by_group_[group]), EstimateBasis.GROUP
        if user and user in self.by_user_:
            return self._said(self.by_user_[user]), EstimateBasis.USER
        return self.fallback_s, EstimateBasis.EVERYTHING

    def _note(self, group: str, user: str, length_s: float) -> None:
        if group:
            self._keep(self.by_group_.setdefault(group, []), length_s)
        if user:
            self._keep(self.by_user_.setdefault(user, []), length_s)

    @abstractmethod
    def _keep(self, kept: list[float], length_s: float) -> None:
        """Take a run into what is kept of a key."""

    @abstractmethod
    def _said(self, kept: list[float]) -> float:
        """Return the estimate that what is kept gives."""


@dataclass
class MeanPerUser(_Naive):
    """The mean of the user's runs; of all runs for a user never seen."""

    def _typical_s(self, runs: Runs) -> float:
        return float(runs.duration_s.mean())

    def _note(self, group: str, user: str, length_s: float) -> None:
        if user:
            self._keep(self.by_user_.setdefault(user, []), length_s)

    def _keep(self, kept: list[float], length_s: float) -> None:
        kept[:] = [kept[0] + 1, kept[1] + length_s] if kept else [1.0, length_s]

    def _said(self, kept: list[float]) -> float:
        return kept[1] / kept[0]


@dataclass
class LastRun(_Naive):
    """As long as the group's last run; else the user's last, else the middle of all."""

    def _keep(self, kept: list[float], length_s: float) -> None:
        kept[:] = [length_s]

    def _said(self, kept: list[float]) -> float:
        return kept[0]


@dataclass
class LastTwo(_Naive):
    """The mean of the last two runs of the group, else of the user (Tsafrir et al., 2007)."""

    def _keep(self, kept: list[float], length_s: float) -> None:
        kept[:] = [*kept, length_s][-2:]

    def _said(self, kept: list[float]) -> float:
        return sum(kept) / len(kept)


NAIVE: dict[str, Callable[[], _Naive]] = {"mean-per-user": MeanPerUser, "last-run": LastRun}
"""The twins that every report shows."""
