"""Amounts of memory as people write them: ``512MiB``, ``4GiB``, ``1.5G``."""

import re
from typing import Final

from interlane.model.errors import InvalidField

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def bytes_in(text: str, field: str) -> int:
    """Return the bytes that the text of this field names; units are powers of 1024."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise InvalidField(field, text, "an amount of memory reads like 512MiB or 4GiB")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def written(amount_bytes: int) -> str:
    """Return an amount of memory as people read it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        size = _UNITS[unit[0]]
        if abs(amount_bytes) >= size:
            return f"{amount_bytes / size:.1f} {unit}"
    return f"{amount_bytes} B"
