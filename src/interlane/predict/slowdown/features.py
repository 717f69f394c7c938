"""What trees look at: both sides' counters, how they add up, families and GPU types."""

import numpy as np

from interlane.predict.slowdown.pairs import SHARES, Floats, Ints, Pairs


def concatenated(pairs: Pairs) -> Floats:
    """Return what is known of both sides side by side, as SMore's predictor has it."""
    return np.column_stack([*pairs.sides(pairs.profiles.filled), *_names(pairs)])


def crossed(pairs: Pairs) -> Floats:
    """Return the same, and how both sides' counters act together."""
    one, other = pairs.sides(pairs.profiles.filled)
    apart, product, larger = one - other, one * other, np.maximum(one, other)
    return np.column_stack([concatenated(pairs), apart, product, larger, overflow(pairs)])


def overflow(pairs: Pairs) -> Floats:
    """Return by how much both sides' shares of each resource exceed the whole."""
    counters = pairs.profiles.counters
    shares = [place for place, name in enumerate(counters) if name in SHARES]
    one, other = pairs.sides(pairs.profiles.filled[:, :, shares])
    return np.maximum(0.0, one + other - 1.0)


def _names(pairs: Pairs) -> list[Floats]:
    """Return families and GPU types, a column for each."""
    families = pairs.profiles.family_numbers
    count = int(families.max()) + 1
    return [
        _indicators(families[pairs.victim], count),
        _indicators(families[pairs.aggressor], count),
        _indicators(pairs.gpu, len(pairs.profiles.gpu_types)),
    ]


def _indicators(codes: Ints, count: int) -> Floats:
    return np.eye(count)[codes]
