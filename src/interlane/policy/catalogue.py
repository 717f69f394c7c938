"""Policies by name.

To add one, write it in ``order`` or ``place`` with a docstring and give it a line below: its
first paragraph is what ``interlane policies`` prints.  A maker is anything that returns the
policy when called; its keywords are the policy's settings.  A placer's maker may ask for
``typical``, the typical demands of the workload.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter, getdoc, signature
from math import isfinite
from types import MappingProxyType
from typing import Final

from interlane.model import InvalidField, InvalidInput, UnknownName
from interlane.policy import order, place, reserve
from interlane.policy.base import Order, Placer, TypeRule, TypicalDemand
from interlane.policy.place import RulePlacer
from interlane.policy.policy import Discipline

OrderMaker = Callable[..., Order]
PlacerMaker = Callable[..., Placer]
Setting = bool | int | float | str

ORDERS: Final[Mapping[str, OrderMaker]] = MappingProxyType(
    {
        "fifo": order.Fifo,
        "sjf": order.ShortestFirst,
        "sjf-aged": order.ShortestFirstWithAgeing,
        "srtf": order.ShortestRemainingFirst,
        "las": order.LeastAttainedService,
        "hrrn": order.HighestResponseRatio,
        "priority": order.PriorityWithAgeing,
        "fair": order.FairShare,
    }
)
"""Who goes first."""

PLACERS: Final[Mapping[str, PlacerMaker]] = MappingProxyType(
    {
        "first-fit": place.first_fit,
        "pack": place.pack,
        "balance": place.balance,
        "random": place.random,
        "dot-product": place.dot_product,
        "gpu-clustering": place.gpu_clustering,
        "gpu-packing": place.gpu_packing,
        "best-fit": place.best_fit,
        "fgd": place.fgd,
        "lookahead": place.lookahead,
        "d-choices": place.d_choices,
        "pai-pack": place.pai_pack,
        "pai-balance": place.pai_balance,
        "reserve-and-pack": reserve.reserve_and_pack,
        "reserve-and-lend": reserve.reserve_and_lend,
        "uncontended": reserve.uncontended,
    }
)
"""Where a job goes."""

QUEUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "skip": "Whoever fits starts, in order; a job that does not fit is passed.",
        "strict": "Nobody passes the head of the queue.",
        "easy": "The head gets a reservation; others pass if they do not delay it. With "
        "easy:bound_s=1800, estimates let others pass a head for so many seconds only.",
    }
)
"""What a job that does not fit does to those behind it."""

_BLIND: Final = frozenset({"fifo", "las", "priority", "fair"})
"""Orders that do not look at estimates."""


def needs_estimate(order_name: str, queue: Discipline) -> bool:
    """Tell whether an order or a queue looks at estimated durations."""
    return order_name not in _BLIND or queue is Discipline.EASY


def describe(maker: Callable[..., object]) -> str:
    """Return the first paragraph of a maker's docstring."""
    text = " ".join((getdoc(maker) or "").split("\n\n")[0].split())
    return text if text else "No description."


def make_order(
    name: str, known: Mapping[str, OrderMaker] = ORDERS, **settings: Setting
) -> Order:
    """Return the order of this name, with settings of its own."""
    if name not in known:
        raise UnknownName("order", name, known)
    return known[name](**_checked(name, known[name], settings))


@dataclass(frozen=True)
class PlacerRecipe:
    """All that is needed to make a placer once the workload is known."""

    name: str
    maker: PlacerMaker
    types: TypeRule | None = None
    """Whose GPU types bind; None leaves that to the placer."""
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def needs_typical(self) -> bool:
        """Whether the placer wants to know the typical demands of the workload."""
        return "typical" in signature(self.maker).parameters

    def make(self, typical: tuple[TypicalDemand, ...] = ()) -> Placer:
        """Return the placer."""
        extra = {"typical": typical} if self.needs_typical else {}
        placer = self.maker(**extra, **self.settings)
        if self.types is None or placer.types is self.types:
            return placer
        if not isinstance(placer, RulePlacer):
            raise InvalidInput(
                f"Placer {self.name} holds jobs to GPU types by a rule of its own; "
                f"leave --gpu-types out."
            )
        return replace(placer, rule=replace(placer.rule, types=self.types))


def placer_recipe(
    name: str,
    types: TypeRule | None = None,
    known: Mapping[str, PlacerMaker] = PLACERS,
    **settings: Setting,
) -> PlacerRecipe:
    """Return how to make the placer of this name, with settings of its own."""
    if name not in known:
        raise UnknownName("placer", name, known)
    return PlacerRecipe(name, known[name], types, _checked(name, known[name], settings))


def make_placer(
    name: str,
    typical: tuple[TypicalDemand, ...] = (),
    types: TypeRule | None = None,
) -> Placer:
    """Return the placer of this name for a workload with these typical demands."""
    return placer_recipe(name, types).make(typical)


def _checked(
    name: str, maker: Callable[..., object], settings: Mapping[str, Setting]
) -> dict[str, Setting]:
    """Return the settings in the types that the maker's defaults have."""
    simple = {
        key: type(parameter.default)
        for key, parameter in signature(maker).parameters.items()
        if _is_simple(parameter)
    }
    checked: dict[str, Setting] = {}
    for key, value in settings.items():
        if key not in simple:
            raise UnknownName(f"setting of {name}", key, simple or ["none"])
        checked[key] = _converted(f"{key} of {name}", value, simple[key])
    return checked


def _is_simple(parameter: Parameter) -> bool:
    # The type rule is chosen beside the placer, not inside its settings.
    return isinstance(parameter.default, bool | int | float | str)


def _converted(what: str, value: Setting, kind: type[Setting]) -> Setting:
    if kind is bool and isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise InvalidField(what, value, "it must be true or false")
        return value.lower() == "true"
    try:
        converted = kind(value)
        if isinstance(converted, float) and not isfinite(converted):
            raise ValueError
        return converted
    except (ValueError, OverflowError):
        rule = "it must be a whole number" if kind is int else "it must be a number"
        raise InvalidField(what, value, rule) from None
