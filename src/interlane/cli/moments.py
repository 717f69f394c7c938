"""Moments and lengths of time as people read them."""

from datetime import datetime
from typing import Final

from interlane.model.amounts import span

NONE: Final = "-"


def clock(at_s: float | None, now_s: float) -> str:
    """Return a moment by the clock of whoever reads it; with its date, unless it is today's."""
    if at_s is None:
        return NONE
    at, now = (datetime.fromtimestamp(one).astimezone() for one in (at_s, now_s))
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"


def dated(at_s: float | None, now_s: float) -> str:
    """Return a moment with its date, and how far it is from now."""
    if at_s is None:
        return NONE
    at = datetime.fromtimestamp(at_s).astimezone()
    apart_s = now_s - at_s
    how = f"{span(apart_s)} ago" if apart_s >= 0 else f"in {span(-apart_s)}"
    return f"{at:%Y-%m-%d %H:%M:%S} ({how})"


def length(seconds: float | None) -> str:
    """Return a length of time; a dash for none."""
    return NONE if seconds is None else span(max(0.0, seconds))


def soon(at_s: float | None, now_s: float) -> str:
    """Return how long it is until a moment: ``7.1 h``."""
    return NONE if at_s is None else length(at_s - now_s)
