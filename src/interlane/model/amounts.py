"""Amounts as people write them in job files: ``12GB``, ``300m``, ``2h``, ``12GB..20GB``."""

import re
from math import ceil
from typing import Final

from interlane.model import MILLI, InvalidField

_BYTES: Final = {
    "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_LARGEST: Final = 10**15

RANGE: Final = ".."


def memory_mib(field: str, text: str) -> int:
    """Return an amount of memory, rounded up to whole MiB."""
    number, unit = _split(field, text, "it must read like 12GB or 512MiB")
    if unit not in _BYTES:
        raise InvalidField(field, text, f"its unit must be one of {', '.join(_BYTES)}")
    return ceil(number * _BYTES[unit] / (1 << 20))


def milli(field: str, text: str | int | float) -> int:
    """Return a count in thousandths: ``300m`` is 300, ``2`` is 2000."""
    number, unit = _split(field, str(text), "it must read like 300m or 2")
    if unit not in ("", "m"):
        raise InvalidField(field, text, "it must read like 300m or 2")
    return ceil(number if unit else number * MILLI)


def seconds(field: str, text: str | int | float) -> float:
    """Return a span of time; a bare number is seconds."""
    number, unit = _split(field, str(text), "it must read like 90s, 10m, 2h or 1d")
    if unit and unit not in _SECONDS:
        raise InvalidField(field, text, f"its unit must be one of {', '.join(_SECONDS)}")
    return number * _SECONDS.get(unit, 1.0)


def ends(text: str) -> tuple[str, str | None]:
    """Split ``request..limit``; a single amount has no limit."""
    low, dots, high = text.partition(RANGE)
    return low.strip(), high.strip() if dots else None


def _split(field: str, text: str, rule: str) -> tuple[float, str]:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or len(found[1]) > 20 or float(found[1]) > _LARGEST:
        raise InvalidField(field, text, rule)
    return float(found[1]), found[2]
