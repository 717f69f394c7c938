"""What an instance asks of a GPU, as a word."""

from typing import Final

import polars as pl

CPU_ONLY: Final = "cpu_only"
SHARED: Final = "shared"
WHOLE: Final = "whole"
SEVERAL: Final = "several"

KINDS: Final = {
    CPU_ONLY: "no GPU",
    SHARED: "part of a GPU",
    WHOLE: "one GPU",
    SEVERAL: "several GPUs",
}
"""Kind -> how a plot names it."""


KIND: Final = pl.Enum(list(KINDS))


def kind_of(gpus: str = "gpus") -> pl.Expr:
    """Return the kind of a request for this many GPUs."""
    asked = pl.col(gpus)
    return (
        pl.when(asked.is_null())
        .then(None)
        .when(asked <= 0)
        .then(pl.lit(CPU_ONLY))
        .when(asked < 1)
        .then(pl.lit(SHARED))
        .when(asked == 1)
        .then(pl.lit(WHOLE))
        .otherwise(pl.lit(SEVERAL))
        .cast(KIND)
    )
