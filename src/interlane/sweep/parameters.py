"""Parameters of a sweep: which values they take, and how trials are made of them.

A value is text from here on, as somebody would type it into the command.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, inf, isfinite, log, prod
from random import Random
from typing import Final

from interlane.model.errors import InvalidField, InvalidInput

TRIALS_MAX: Final = 5_000
LOG: Final = "log:"
RANGE: Final = ".."
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LIKE: Final = "write values as 0.1,0.01, whole numbers as 2..8, or a span as 0.1..0.9"

Values = Mapping[str, str]
"""Parameter -> value, of one trial."""


@dataclass(frozen=True, slots=True)
class ListedParameter:
    """A parameter that takes one of some values."""

    name: str
    values: tuple[str, ...]

    def at(self, part: float) -> str:
        """Return the value at a part, from 0 to below 1, of all."""
        return self.values[int(part * len(self.values))]


@dataclass(frozen=True, slots=True)
class SpanParameter:
    """A parameter that takes any number between two, for random draws."""

    name: str
    low: float
    high: float
    by_log: bool
    """Whether every factor, and not every difference, is as likely as another."""

    def at(self, part: float) -> str:
        """Return the value at a part, from 0 to below 1, of all."""
        if self.by_log:
            value = exp(log(self.low) + part * (log(self.high) - log(self.low)))
        else:
            value = self.low + part * (self.high - self.low)
        text = f"{value:.6g}"  # which may round beyond an end
        return text if self.low <= float(text) <= self.high else repr(self.low)


Parameter = ListedParameter | SpanParameter


def parameters_in(said: Mapping[str, object]) -> tuple[Parameter, ...]:
    """Return the parameters that a document names, each with its values."""
    if not said:
        raise InvalidInput(
            "The sweep has no parameters, so that there is nothing to try; name some, as in "
            "--set lr=0.1,0.01."
        )
    return tuple(_parameter(name, value) for name, value in said.items())


def grid(parameters: Sequence[Parameter]) -> list[Values]:
    """Return every combination, the last parameter changing fastest."""
    choices = [one for one in parameters if isinstance(one, ListedParameter)]
    for one in parameters:
        if isinstance(one, SpanParameter):
            raise InvalidInput(
                f"{one.name} is a span of numbers, of which a grid has no end; list its "
                "values, or draw some with --random."
            )
    count = prod(len(one.values) for one in choices)
    if count > TRIALS_MAX:
        raise InvalidInput(
            f"The grid has {count:,} trials, and {TRIALS_MAX:,} is the most; name fewer "
            "values, or draw some with --random."
        )
    names = [one.name for one in choices]
    return [
        dict(zip(names, values, strict=True))
        for values in product(*(one.values for one in choices))
    ]


def drawn(parameters: Sequence[Parameter], trials: int, seed: int) -> list[Values]:
    """Return so many combinations, no two of them alike; all of them where there are fewer."""
    rng = Random(seed)
    most = prod(
        len(one.values) if isinstance(one, ListedParameter) else inf for one in parameters
    )
    found: dict[tuple[str, ...], Values] = {}
    while len(found) < min(trials, most):
        values = {one.name: one.at(rng.random()) for one in parameters}
        found.setdefault(tuple(values.values()), values)
    return list(found.values())


def checked_draws(trials: object, seed: object) -> tuple[int, int]:
    """Return how many trials are drawn, and by which seed."""
    if not isinstance(trials, int) or trials is True or not 0 < trials <= TRIALS_MAX:
        rule = f"a sweep has from 1 to {TRIALS_MAX:,} trials"
        raise InvalidField("random", trials, rule)
    if not isinstance(seed, int):
        raise InvalidField("seed", seed, "it must be a whole number")
    return trials, seed


# -- one parameter --------------------------------------------------------------------


def _parameter(name: object, said: object) -> Parameter:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = "it must be made of letters, digits and _, and not begin with a digit"
        raise InvalidField("A parameter's name", name, rule)
    if isinstance(said, str):
        return _of_text(name, said)
    if isinstance(said, list | tuple):
        return ListedParameter(name, _checked(name, [_written(name, one) for one in said]))
    return ListedParameter(name, _checked(name, [_written(name, said)]))


def _of_text(name: str, text: str) -> Parameter:
    by_log = text.startswith(LOG)
    low, dots, rest = text.removeprefix(LOG).partition(RANGE)
    if not dots:
        if by_log:
            raise InvalidField(name, text, "log: goes before a span, as in log:0.0001..0.1")
        return ListedParameter(name, _checked(name, [one.strip() for one in text.split(",")]))
    high, colon, step = rest.partition(":")
    whole = [_whole(one) for one in (low, high, step or "1")]
    if None not in whole and not by_log:
        return ListedParameter(name, _counted(name, text, *(one or 0 for one in whole)))
    ends = _number(low), _number(high)
    if colon or ends[0] is None or ends[1] is None:
        raise InvalidField(name, text, _LIKE)
    if not ends[0] < ends[1]:
        raise InvalidField(name, text, "a span goes from less to more")
    if by_log and ends[0] <= 0:
        raise InvalidField(name, text, "a span by log begins above 0")
    return SpanParameter(name, ends[0], ends[1], by_log)


def _counted(name: str, text: str, low: int, high: int, step: int) -> tuple[str, ...]:
    if step < 1 or high < low:
        raise InvalidField(name, text, "it counts upwards, as in 2..8 or 2..8:2")
    if (high - low) // step >= TRIALS_MAX:
        raise InvalidField(name, text, f"it has more values than the {TRIALS_MAX:,} of a sweep")
    return tuple(str(one) for one in range(low, high + 1, step))


def _checked(name: str, values: Sequence[str]) -> tuple[str, ...]:
    if not values or values == [""]:
        raise InvalidInput(f"{name} has no values, so that there are no trials; {_LIKE}.")
    for value in values:
        number = _as_float(value)
        if number is not None and not isfinite(number):
            raise InvalidField(name, value, "a value that is a number must be finite")
        if not value.isprintable():
            raise InvalidField(name, value, "a value must be printable")
    twice = _first_twice(values)
    if twice is not None:
        raise InvalidField(name, twice, "it is there twice; leave one of them out")
    return tuple(values)


def _first_twice(values: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def _written(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    raise InvalidField(name, value, "a value is a number or a text")


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[-+]?[0-9]{1,15}", text) else None


def _number(text: str) -> float | None:
    number = _as_float(text)
    return number if number is not None and isfinite(number) else None


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
