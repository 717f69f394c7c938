"""Amounts as Kubernetes writes them: ``500m``, ``1Gi``, ``1e3``."""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from math import ceil, floor
from typing import Final

from interlane.model import InvalidField

_UNITS: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{one: Decimal(1000) ** power for power, one in enumerate("kMGTPE", 1)},
    **{f"{one}i": Decimal(1024) ** power for power, one in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(
    r"([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?"
)
MIB: Final = 1 << 20
MOST: Final = Decimal(1 << 52)
"""What is beyond it is a mistake, or a lie."""


@lru_cache(4096)
def number(field: str, text: object) -> Decimal:
    """Return what a quantity says; it must not be negative, nor beyond all bounds."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise InvalidField(field, text, "it must read like 500m, 2 or 4Gi")
    digits, unit, power = found.groups()
    amount = Decimal(digits) * (Decimal(10) ** int(power) if power else _UNITS[unit or ""])
    if not 0 <= amount <= MOST:
        raise InvalidField(field, text, f"it must be 0 to {MOST}")
    return amount


def milli(resources: Mapping[str, object], name: str) -> int:
    """Return how many thousandths of a resource are asked for."""
    return ceil(number(name, resources.get(name, 0)) * 1000)


def mib(resources: Mapping[str, object], name: str) -> int:
    """Return how many MiB of a resource are asked for."""
    return ceil(number(name, resources.get(name, 0)) / MIB)


def count(resources: Mapping[str, object], name: str) -> int:
    """Return how many of a resource there are, or are asked for."""
    return floor(number(name, resources.get(name, 0)))


def mib_offered(resources: Mapping[str, object], name: str) -> int:
    """Return how many whole MiB of a resource there are."""
    return floor(number(name, resources.get(name, 0)) / MIB)
