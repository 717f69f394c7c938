"""A sweep as its user wrote it, and the jobs that it means.

It is stored with each of its jobs, so that it can be gone on with by whoever finds one.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from interlane.model.errors import InvalidField, InvalidInput, UnknownName
from interlane.sweep.halving import Halving
from interlane.sweep.parameters import (
    Parameter,
    Values,
    checked_draws,
    drawn,
    grid,
    parameters_in,
)

BUDGET: Final = "budget"
TRIAL: Final = "trial"
OWN: Final = (BUDGET, TRIAL)
"""What a command may name beside parameters."""
FIELDS: Final = ("name", "job", "set", "random", "seed", "halving", "metric", "goal")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,38}[a-z0-9])?")
_METRIC: Final = re.compile(r"[A-Za-z_][\w./-]{0,62}")


class NoSuchSweep(InvalidInput):
    """Nobody began a sweep of this name, or it is no longer on record."""


class Goal(StrEnum):
    """Which end of the metric is better."""

    MIN = "min"
    MAX = "max"

    def rank(self, value: float) -> float:
        """Return a number that is the smaller, the better the value is."""
        return value if self is Goal.MIN else -value


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """One combination of values."""

    number: int
    values: Values


@dataclass(frozen=True)
class Sweep:
    """See the module's text."""

    name: str
    job: Mapping[str, Any]
    """The job of every trial, in whose commands and variables ``{lr}`` stands for a value."""
    said: Mapping[str, object]
    """The parameters, as they were written."""
    metric: str
    goal: Goal = Goal.MIN
    draws: tuple[int, int] | None = None
    """How many trials are drawn, and by which seed; the whole grid if None."""
    halving: Halving | None = None

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What differs between trials."""
        return parameters_in(self.said)

    @cached_property
    def trials(self) -> tuple[SweepTrial, ...]:
        """All trials that there may be; the same ones for the same definition."""
        made = (
            grid(self.parameters) if self.draws is None else drawn(self.parameters, *self.draws)
        )
        return tuple(SweepTrial(number, values) for number, values in enumerate(made))

    @cached_property
    def in_rounds(self) -> bool:
        """Whether a trial is run anew for each budget, which its command names."""
        return self.halving is not None and BUDGET in set(_named(self.job))

    @property
    def rounds(self) -> int:
        """How many jobs a trial may have, one after the other."""
        return len(self.halving.budgets) if self.halving and self.in_rounds else 1

    def command(self, trial: int, rung: int) -> str:
        """Return the command line of a trial."""
        run = _filled(self.job, self._given(trial, rung))["run"]
        return str(run)

    def job_of(self, trial: int, rung: int) -> dict[str, Any]:
        """Return the job of a trial, as it is submitted."""
        made = _filled(self.job, self._given(trial, rung))
        made.setdefault("group", f"sweep {self.name}" + (f" {rung}" if self.in_rounds else ""))
        made["name"] = job_name(self.name, trial, rung)
        made["sweep"] = {
            "name": self.name,
            "trial": trial,
            "rung": rung,
            "definition": self.definition,
            "job": dict(self.job),
        }
        return made

    def _given(self, trial: int, rung: int) -> dict[str, str]:
        given = {**self.trials[trial].values, TRIAL: str(trial)}
        if self.halving is not None and self.in_rounds:
            given[BUDGET] = str(self.halving.budgets[rung])
        return given

    @property
    def definition(self) -> dict[str, Any]:
        """The sweep as a document, but for its name and its job."""
        made: dict[str, Any] = {
            "set": dict(self.said),
            "metric": self.metric,
            "goal": self.goal.value,
        }
        if self.draws is not None:
            made["random"], made["seed"] = self.draws
        if self.halving is not None:
            made["halving"] = str(self.halving)
        return made


def sweep_of(document: Mapping[str, Any]) -> Sweep:
    """Return the sweep that a document describes, or say what is wrong with it."""
    for field in document:
        if field not in FIELDS:
            raise UnknownName("field of a sweep", str(field), FIELDS)
    said, job = document.get("set") or {}, document.get("job") or {}
    for field, value in (("set", said), ("job", job)):
        if not isinstance(value, Mapping):
            raise InvalidField(field, value, "it must have fields")
    goal = document.get("goal", Goal.MIN)
    if goal not in list(Goal):
        raise InvalidField("goal", goal, "it must be min or max")
    draws, halving = document.get("random"), document.get("halving")
    made = Sweep(
        _checked_name(document.get("name", "")),
        job,
        said,
        _checked_metric(document.get("metric")),
        Goal(goal),
        None if draws is None else checked_draws(draws, document.get("seed", 0)),
        None if halving is None else Halving.of(halving),
    )
    _check_commands(made)
    assert made.trials, "a parameter has values, and a draw is of one trial or more"
    return made


def job_name(sweep: str, trial: int, rung: int) -> str:
    """Return what the job of a trial is called."""
    return f"{sweep}-t{trial}-r{rung}"


def of_job_name(sweep: str, name: str) -> tuple[int, int] | None:
    """Return the trial and the rung of a job; None if it is called otherwise."""
    found = re.fullmatch(rf"{re.escape(sweep)}-t(\d{{1,6}})-r(\d{{1,3}})", name)
    return None if found is None else (int(found[1]), int(found[2]))


def command_line(words: Sequence[str]) -> str:
    """Return words as a command line in which names in braces stay what they are."""
    if len(words) == 1:
        return words[0]
    return " ".join(_quoted(word) for word in words)


# -- checks ---------------------------------------------------------------------------


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = "it must be 1 to 40 of a-z, 0-9, ., _ and -, with a letter or digit at both ends"
        raise InvalidField("name", name, rule)
    return name


def _checked_metric(metric: object) -> str:
    if metric is None:
        raise InvalidInput(
            "The sweep has no metric; name what its trials print, as in --metric loss."
        )
    if not isinstance(metric, str) or not _METRIC.fullmatch(metric):
        rule = "it must be the word before the number that trials print, as in loss"
        raise InvalidField("metric", metric, rule)
    return metric


def _check_commands(sweep: Sweep) -> None:
    """Refuse parameters that no command names: all trials would be alike."""
    if not sweep.job.get("run"):
        raise InvalidInput(
            "The sweep has no command; give one after --, or as job.run in its file."
        )
    named = set(_named(sweep.job))
    for parameter in sweep.parameters:
        if parameter.name in OWN:
            raise InvalidField("set", parameter.name, "this name has a meaning of its own")
        if parameter.name not in named:
            raise InvalidInput(
                f"{parameter.name} is not in the command; write {{{parameter.name}}} where its "
                "value goes."
            )
    if BUDGET in named and sweep.halving is None:
        raise InvalidInput(
            "The command names {budget}, which halving gives; add it, as in --halving 1..27."
        )


# -- commands -------------------------------------------------------------------------

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _texts(job: Mapping[str, Any]) -> Iterator[str]:
    for part in (job, *(job.get("tasks") or ())):
        if isinstance(part, Mapping):
            yield str(part.get("run") or "")
            yield from map(str, (part.get("env") or {}).values())


def _named(job: Mapping[str, Any]) -> Iterator[str]:
    for text in _texts(job):
        yield from _PLACE.findall(text)


def _filled(part: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return a job or a task of it with values in place of their names."""
    made = dict(part)
    if made.get("run"):
        made["run"] = _replaced(str(made["run"]), given, quote=True)
    if made.get("env"):
        made["env"] = {
            name: _replaced(str(value), given, quote=False)
            for name, value in made["env"].items()
        }
    if made.get("tasks"):
        made["tasks"] = [_filled(one, given) for one in made["tasks"]]
    return made


def _replaced(text: str, given: Mapping[str, str], *, quote: bool) -> str:
    """Return text with values; braces around other names are the shell's or the program's."""

    def value(found: "re.Match[str]") -> str:
        if found[1] not in given:
            return found[0]
        return shlex.quote(given[found[1]]) if quote else given[found[1]]

    return _PLACE.sub(value, text)


def _quoted(word: str) -> str:
    """Return a word for the shell; a value goes in later, with quotes of its own."""
    parts = _PLACE.split(word)
    if len(parts) == 1:
        return shlex.quote(word)
    return "".join(
        f"{{{part}}}" if at % 2 else shlex.quote(part) if part else ""
        for at, part in enumerate(parts)
    )
