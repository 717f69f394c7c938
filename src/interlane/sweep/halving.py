"""Successive halving: all trials get a small budget, the best of them the next larger one."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from interlane.model.errors import InvalidField

BY: Final = 3
_LIKE: Final = "write budgets as 1..27, or 1..27:3 to keep a third of the trials each time"


@dataclass(frozen=True)
class Halving:
    """From which budget to which, and by what factor."""

    low: int
    high: int
    by: int = BY

    @cached_property
    def budgets(self) -> tuple[int, ...]:
        """What a trial may use by the end of each rung; the last is all that there is."""
        found = [self.low]
        while found[-1] * self.by < self.high:
            found.append(found[-1] * self.by)
        return (*found, self.high)

    def kept(self, trials: int, rung: int) -> int:
        """Return how many of the trials go on beyond a rung, at most."""
        left = trials
        for _ in range(rung + 1):
            left //= self.by
        return max(1, left)

    @classmethod
    def of(cls, said: object) -> "Halving":
        """Read it as people write it."""
        text = str(said)
        span, colon, by = text.partition(":")
        low, dots, high = span.partition("..")
        parts = (low, high, by if colon else str(BY))
        if not dots or not all(one.isascii() and one.isdigit() for one in parts):
            raise InvalidField("halving", said, _LIKE)
        if max(map(len, parts)) > 9:
            raise InvalidField("halving", said, "a budget has at most nine digits")
        made = cls(*map(int, parts))
        if not 0 < made.low < made.high:
            raise InvalidField("halving", said, "it goes from 1 or more to more than that")
        if made.by < 2:
            raise InvalidField("halving", said, "a factor of 2 or more leaves trials out")
        return made

    def __str__(self) -> str:
        return f"{self.low}..{self.high}:{self.by}"
