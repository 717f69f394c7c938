"""Amounts as people read them; every one has its unit."""

import re
from typing import Final

from interlane.model import MILLI, LogEntry, amounts
from interlane.model.units import MIB_PER_GIB

UNKNOWN: Final = "–"


def span(seconds: float | None) -> str:
    """Return a length of time: ``42 s``, ``3.5 min``, ``2.1 h``."""
    return UNKNOWN if seconds is None else amounts.span(seconds)


def short_span(seconds: float | None) -> str:
    """Return a length of time that may be far below a second."""
    if seconds is None or seconds >= 10:
        return span(seconds)
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1_000 * seconds:.3g} ms"


def coarse_span(seconds: float) -> str:
    """Return a length of time that does not change every second."""
    return span(seconds) if seconds >= 60 else f"{5 * round(seconds / 5)} s"


def memory(mib: float) -> str:
    """Return an amount of memory."""
    return f"{mib / MIB_PER_GIB:.3g} GiB" if mib >= MIB_PER_GIB else f"{mib:.0f} MiB"


def kind(entry: LogEntry) -> str:
    """Return what an entry of the log tells: ``cancel requested``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", entry.kind).lower()


def percent(ratio: float | None) -> str:
    """Return a share of one."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.0f} %"


def gpus(milli: float) -> str:
    """Return an amount of GPUs."""
    return f"{milli / MILLI:.3g} GPU"


def count(number: int, noun: str) -> str:
    """Return how many of something there are."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
