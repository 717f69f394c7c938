"""How much jobs on one device slow each other down, before they do."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

BY_SHARE: Final = "fair"
"""The order in which turns go by share."""


Beside = Callable[[str, Sequence[str]], float | None]
"""Predicts the slowdown of a program beside others in lanes of their own; None if unknown."""


def in_turns(milli: int, others_milli: Iterable[int], order: str) -> float:
    """Return time together over time alone for a job that, as others do, always wants its turn.

    By share, it gets its part of all shares that are there; with any other order nobody can say
    more than that so many take turns.  Whoever pauses between iterations is slowed down less.
    """
    others = list(others_milli)
    if order == BY_SHARE:
        return (milli + sum(others)) / milli
    return 1.0 + len(others)
