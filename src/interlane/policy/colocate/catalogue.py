"""Colocators by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from interlane.model import UnknownName
from interlane.policy.colocate.place import Bounded, Colocator, Smore
from interlane.policy.colocate.slowdown import SharingTables, Slowdowns
from interlane.predict.slowdown.multiway import WeightedSum

COLOCATORS: Final[Mapping[str, Callable[..., Colocator]]] = MappingProxyType(
    {"colocate": Bounded, "smore": Smore}
)
"""Where a function goes; the first is ours and the default."""


def make_colocator(
    name: str, modes: Mapping[str, SharingTables]
) -> tuple[Colocator, Slowdowns]:
    """Return a colocator and the numbers it decides by: bounds, or estimates for SMore's."""
    if name not in COLOCATORS:
        raise UnknownName("colocator", name, COLOCATORS)
    slowdowns = (
        Slowdowns(modes, WeightedSum(), cautious=False) if name == "smore" else Slowdowns(modes)
    )
    return COLOCATORS[name](slowdowns), slowdowns
