"""Colocators by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from interlane.model import UnknownName
from interlane.policy.colocate.place import Bounded, Colocator, Smore
from interlane.policy.colocate.slowdown import Mode, Tolls
from interlane.predict.degradation.multiway import WeightedSum

COLOCATORS: Final[Mapping[str, Callable[..., Colocator]]] = MappingProxyType(
    {"colocate": Bounded, "smore": Smore}
)
"""Where a function goes; the first is ours and the default."""


def make_colocator(name: str, modes: Mapping[str, Mode]) -> tuple[Colocator, Tolls]:
    """Return a colocator and the numbers it decides by: bounds, or guesses for SMore's."""
    if name not in COLOCATORS:
        raise UnknownName("colocator", name, COLOCATORS)
    tolls = Tolls(modes, WeightedSum(), cautious=False) if name == "smore" else Tolls(modes)
    return COLOCATORS[name](tolls), tolls
