"""Names that look like the trace's: hexadecimal, each once, the same for the same seed."""

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

_PAIRS: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)

SALT: Final = {
    name: salt
    for salt, name in enumerate(
        ("job", "inst", "worker", "user", "group", "machine", "name"), start=1
    )
}
"""Kind of name -> what keeps it apart from equal numbers of other kinds."""


def scrambled(kind: str, seed: int, numbers: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return 64 bits for each number; different numbers give different bits."""
    start = (SALT[kind] * 0x9E3779B97F4A7C15 + seed * 0xD1B54A32D192ED03) % 2**64
    # The finaliser of splitmix64, a one-to-one mapping.
    mixed = numbers.astype(np.uint64) + np.uint64(start)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def names(kind: str, seed: int, numbers: NDArray[np.integer]) -> pl.Series:
    """Return a name of 16 hexadecimal digits for each number."""
    words = np.ascontiguousarray(scrambled(kind, seed, numbers))
    digits = _PAIRS[words.view(np.uint8)].view(np.uint8).reshape(-1, 16)
    return pl.Series(digits).arr.to_list().cast(pl.Binary).cast(pl.String)
