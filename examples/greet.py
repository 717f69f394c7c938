"""Functions for ``interlane function deploy``."""

import time


def hello(asked: dict[str, str]) -> dict[str, str]:
    """Greet whoever is named."""
    return {"hello": asked["name"]}


def weights() -> list[float]:
    """Load what takes long; called once in every replica."""
    time.sleep(0.5)
    return [0.5, 0.25, 0.25]


def score(model: list[float], asked: list[list[float]]) -> list[float]:
    """Score several inputs together."""
    return [sum(w * x for w, x in zip(model, row, strict=True)) for row in asked]
