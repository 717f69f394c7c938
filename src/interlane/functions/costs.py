"""What a cold start costs, and what it costs to avoid one."""

from dataclasses import dataclass
from math import ceil

from interlane.model import InvalidField
from interlane.model.function import Function


@dataclass(frozen=True, slots=True)
class Prices:
    """What time and memory are worth; only the ratio of the two matters."""

    waiting: float = 10.0
    """A second for which a request waits for its function."""
    holding: float = 1.0
    """A second for which all of a device's memory is held and not used."""

    def __post_init__(self) -> None:
        for name in ("waiting", "holding"):
            if not getattr(self, name) > 0:
                raise InvalidField(name, getattr(self, name), "it must be above 0")


@dataclass(frozen=True, slots=True)
class Costs:
    """What is at stake for one replica in one slot."""

    cold: float
    """A request that finds no replica."""
    idle: float
    """A replica that is not asked."""
    load: float = 0.0
    """Bringing a replica in."""

    @property
    def weight(self) -> float:
        """How many idle slots a cold start is worth."""
        return self.cold / self.idle


def costs_of(
    function: Function,
    prices: Prices,
    *,
    slot_s: float,
    device_mib: int,
    least: float = 0.0,
) -> Costs:
    """Return what is at stake for a function whose model is on disk.

    A replica holds the share of the device that is its memory's, or ``least`` where others
    are kept from more of it, asked or not.
    """
    share = max(function.memory_mib / device_mib, least)
    cold_s = function.disk_load_s
    return Costs(
        prices.waiting * max(cold_s, 1e-3),
        prices.holding * share * slot_s,
        prices.holding * share * cold_s,
    )


def is_worth_it(chance: float, costs: Costs, *, is_loaded: bool) -> bool:
    """Tell whether a replica should be there in the next slot."""
    return chance * costs.cold > (1 - chance) * costs.idle + (0 if is_loaded else costs.load)


def horizon(cold_s: float, slot_s: float) -> int:
    """Return how many slots ahead loading must begin."""
    return max(1, ceil(cold_s / slot_s))


def within(chance: float, slots: int) -> float:
    """Return the probability of a request in any of some slots that are alike."""
    return 1.0 - (1.0 - chance) ** slots
