"""Co-location policies by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from interlane.model import UnknownName
from interlane.policy.colocate.interference import InterferenceModel, SlowdownTarget
from interlane.policy.colocate.place import Apart, Bounded, Colocator, Smore
from interlane.predict.slowdown.multiway import WeightedSum
from interlane.predict.slowdown.table import SlowdownTable

BOUNDED: Final = "bounded"
SMORE: Final = "smore"
NONE: Final = "none"
COLOCATORS: Final[Mapping[str, Callable[..., Colocator]]] = MappingProxyType(
    {BOUNDED: Bounded, SMORE: Smore, NONE: Apart}
)
"""Where a function goes; the first is ours and the default."""


def make_colocator(
    name: str, trained: Mapping[SlowdownTarget, SlowdownTable] | None = None
) -> tuple[Colocator, InterferenceModel]:
    """Return a policy and the numbers it decides by: bounds, or estimates for SMore's."""
    if name not in COLOCATORS:
        raise UnknownName("colocator", name, COLOCATORS)
    is_smore = name == SMORE
    model = InterferenceModel(
        trained, WeightedSum() if is_smore else None, cautious=not is_smore
    )
    return COLOCATORS[name](model.slowdowns), model
