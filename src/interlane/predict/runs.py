"""Runs as columns: what is known of a job when it is submitted, and how long it then ran."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import InvalidField, InvalidInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

LONGEST_S: Final = 1e12
"""A run time beyond this is no run time."""


@dataclass(frozen=True, eq=False)
class Runs:
    """One value per job in every column; ``duration_s`` is NaN where a job has not ended."""

    submit_s: Floats
    duration_s: Floats
    group: tuple[str, ...]
    """What recurs; empty where the trace does not say."""
    user: tuple[str, ...]
    gpus: Floats
    """GPUs of the whole job, shares counted as parts."""
    cpus: Floats
    memory_gib: Floats
    instances: Ints
    gpu_type: tuple[str, ...]

    def __post_init__(self) -> None:
        height = len(self.submit_s)
        for one in fields(self):
            if len(getattr(self, one.name)) != height:
                rule = f"all columns must have {height} values, as submit_s has"
                raise InvalidField(one.name, f"{len(getattr(self, one.name))} values", rule)
        bad = (self.duration_s < 0) | (self.duration_s > LONGEST_S)
        if bad.any():
            value = float(self.duration_s[int(np.argmax(bad))])
            raise InvalidField("duration_s", value, f"it must be 0 to {LONGEST_S:g} s")
        if not np.isfinite(self.submit_s).all():
            raise InvalidField("submit_s", "not a number", "every job needs a submission time")

    def __len__(self) -> int:
        return len(self.submit_s)

    def where(self, mask: Mask) -> "Runs":
        """Return the runs of a mask, in the same order."""
        return self.take(np.flatnonzero(mask))

    def take(self, places: Ints) -> "Runs":
        """Return the runs at these places."""
        return Runs(*(_taken(getattr(self, one.name), places) for one in fields(self)))

    def joined(self, others: "Runs") -> "Runs":
        """Return these runs and others after them."""
        return Runs(
            *(
                _joined(getattr(self, one.name), getattr(others, one.name))
                for one in fields(self)
            )
        )

    @cached_property
    def finish_s(self) -> Floats:
        """When each run was over had it not waited; NaN where it is not known."""
        return self.submit_s + self.duration_s

    @cached_property
    def shape(self) -> tuple[str, ...]:
        """What each job asks for, as one word."""
        columns = (self.instances, self.gpus, self.cpus, self.memory_gib)
        numbers = zip(*(column.tolist() for column in columns), self.gpu_type, strict=True)
        return tuple(f"{i}x{g:g}g{c:g}c{m:g}m{kind}" for i, g, c, m, kind in numbers)

    @cached_property
    def log_s(self) -> Floats:
        """Logarithms of run times, where a run of no time counts as one second."""
        return np.log(np.maximum(self.duration_s, 1.0))


def _taken(column: Any, places: Ints) -> Any:  # noqa: ANN401 - a column of any kind
    if isinstance(column, np.ndarray):
        return column[places]
    return tuple(map(column.__getitem__, places.tolist()))


def _joined(one: Any, two: Any) -> Any:  # noqa: ANN401 - columns of any kind
    return np.concatenate([one, two]) if isinstance(one, np.ndarray) else one + two


def in_time_order(runs: Runs) -> Runs:
    """Return the runs by submission; those of one moment stay as they were."""
    return runs.take(np.argsort(runs.submit_s, kind="stable"))


def informative(runs: Runs) -> tuple[Runs, tuple[str, ...]]:
    """Return runs without names that tell nothing, and a sentence on each such column.

    A column that is empty or the same for all jobs cannot tell one job from another; jobs
    are then known by what is left, in the end by what they ask for.
    """
    group, about_group = _telling("group", runs.group, "user and request")
    user, about_user = _telling("user", runs.user, "request")
    notes = tuple(note for note in (about_group, about_user) if note)
    return replace(runs, group=group, user=user), notes


def _telling(column: str, names: tuple[str, ...], others: str) -> tuple[tuple[str, ...], str]:
    different = set(names)
    if different == {""}:
        return names, f"The trace names no {column}; jobs are known by {others}."
    if len(different) > 1 or len(names) < 2:
        return names, ""
    only = next(iter(different))
    note = (
        f"All jobs have the {column} {only!r}, which tells nothing; they are known by {others}."
    )
    return ("",) * len(names), note


def must_have_ended(runs: Runs) -> None:
    """Refuse to learn from nothing, or from runs whose length is not known."""
    if not len(runs):
        raise InvalidInput("There are no runs to learn from; give at least one job that ended.")
    if np.isnan(runs.duration_s).any():
        raise InvalidField("duration_s", "empty", "only jobs that ended can be learned from")


def runs_per_group(groups: Sequence[str]) -> Ints:
    """Return for each run how many runs its group has; 1 where there is no group."""
    counts: dict[str, int] = {}
    for group in groups:
        counts[group] = counts.get(group, 0) + 1
    counts[""] = 1
    return np.fromiter((counts[group] for group in groups), np.int64, len(groups))
