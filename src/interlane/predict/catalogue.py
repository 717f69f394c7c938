"""Predictors of durations by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from interlane.model import UnknownName
from interlane.predict.cart import Cart
from interlane.predict.estimates import DurationPredictor
from interlane.predict.naive import NAIVE
from interlane.predict.recall import Recall

PREDICTORS: Final[Mapping[str, Callable[[], DurationPredictor]]] = MappingProxyType(
    {"recall": Recall, "cart": Cart, **NAIVE}
)
"""Name -> maker; the first is ours and the default."""

DEFAULT: Final = "recall"


def make_predictor(name: str, keys: str | None = None) -> DurationPredictor:
    """Return a predictor that has learned nothing yet; only a CART takes keys."""
    if name not in PREDICTORS:
        raise UnknownName("model", name, PREDICTORS)
    return Cart(keys) if name == "cart" and keys is not None else PREDICTORS[name]()


def name_of(predictor: DurationPredictor) -> str:
    """Return the name under which a predictor is known."""
    return next(name for name, maker in PREDICTORS.items() if type(predictor) is maker)
