"""Amounts as people write them: ``12GB``, ``300m``, ``2h``, ``12GB..20GB``.

``GB`` is 1000 MB and ``GiB`` is 1024 MiB, for jobs, functions and devices alike.  Units of
memory may be written in capitals or not.
"""

import re
from math import ceil
from typing import Final

from interlane.model.errors import InvalidField
from interlane.model.units import MILLI

_PREFIXES: Final = "KMGT"
_BYTES: Final = {f"{one}B": 1000**power for power, one in enumerate(_PREFIXES, 1)} | {
    f"{one}iB": 1 << 10 * power for power, one in enumerate(_PREFIXES, 1)
}
_BY_UNIT: Final = {unit.lower(): size for unit, size in _BYTES.items()}
_BY_SHORT_UNIT: Final = {"": 1, "b": 1} | {one.lower(): _BYTES[f"{one}iB"] for one in _PREFIXES}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_STEPS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", re.ASCII)
_LARGEST: Final = 10**15
_MOST_BYTES: Final = 1 << 52
_MOST_COUNT: Final = 10**6
_MOST_S: Final = 36_500 * 86_400.0
"""Amounts beyond these are mistakes; what is below can be summed over any gang and cluster in
64 bits, and given to the operating system as it is."""

RANGE: Final = ".."


def memory_mib(field: str, text: str) -> int:
    """Return an amount of memory with its unit, rounded up to whole MiB."""
    return ceil(_bytes(field, text, _BY_UNIT, "it must read like 12GB or 512MiB") / (1 << 20))


def memory_bytes(field: str, text: str) -> int:
    """Return an amount of memory; a bare number is bytes, and K, M, G, T are KiB to TiB."""
    units = _BY_UNIT | _BY_SHORT_UNIT
    return round(_bytes(field, text, units, "an amount of memory reads like 512MiB or 4GB"))


def written(amount_bytes: int) -> str:
    """Return an amount of memory as people read it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(amount_bytes) >= _BYTES[unit]:
            return f"{amount_bytes / _BYTES[unit]:.1f} {unit}"
    return f"{amount_bytes} B"


def span(seconds: float) -> str:
    """Return a length of time as people read it: ``42 s``, ``3.5 min``, ``2.1 h``."""
    for size, unit in _STEPS:
        if seconds >= size:
            amount = seconds / size
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{seconds:.2g} s" if 0 < seconds < 1 else f"{seconds:.0f} s"


def milli(field: str, text: str | int | float) -> int:
    """Return a count in thousandths: ``300m`` is 300, ``2`` is 2000."""
    number, unit = _split(field, str(text), "it must read like 300m or 2")
    if unit not in ("", "m"):
        raise InvalidField(field, text, "it must read like 300m or 2")
    if number > (_MOST_COUNT * MILLI if unit else _MOST_COUNT):
        raise InvalidField(field, text, f"it must be at most {_MOST_COUNT:,}")
    # 0.56 times 1000 is a little more than 560, and must not become 561.
    return ceil(round(number if unit else number * MILLI, 6))


def seconds(field: str, text: str | int | float) -> float:
    """Return a span of time; a bare number is seconds."""
    number, unit = _split(field, str(text), "it must read like 90s, 10m, 2h or 1d")
    if unit and unit not in _SECONDS:
        raise InvalidField(field, text, f"its unit must be one of {', '.join(_SECONDS)}")
    span_s = number * _SECONDS.get(unit, 1.0)
    if span_s > _MOST_S:
        raise InvalidField(field, text, f"it must be at most {_MOST_S / 86_400:,.0f} days")
    return span_s


def ends(text: str) -> tuple[str, str | None]:
    """Split ``request..limit``; a single amount has no limit."""
    low, dots, high = text.partition(RANGE)
    return low.strip(), high.strip() if dots else None


def _bytes(field: str, text: str, units: dict[str, int], rule: str) -> float:
    number, unit = _split(field, text, rule)
    if unit.lower() not in units:
        raise InvalidField(field, text, f"its unit must be one of {', '.join(_BYTES)}")
    size = number * units[unit.lower()]
    if size > _MOST_BYTES:
        raise InvalidField(field, text, f"it must be at most {written(_MOST_BYTES)}")
    return size


def _split(field: str, text: str, rule: str) -> tuple[float, str]:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise InvalidField(field, text, rule)
    if len(found[1]) > 20 or float(found[1]) > _LARGEST:
        raise InvalidField(field, text, f"its number must be at most {_LARGEST:,}")
    return float(found[1]), found[2]
