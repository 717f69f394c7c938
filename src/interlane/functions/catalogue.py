"""The advisors of a portfolio, for functions that are watched together."""

from collections.abc import Mapping
from typing import Final

from interlane.functions.advise import Advisor, Hurdle, Kept, LastSlotRule, Peak
from interlane.predict.arrivals.live import Forecaster
from interlane.predict.arrivals.rules import RULES
from interlane.predict.arrivals.series import Floats

KEPT_SLOTS: Final = (1, 3, 10, 20)
MORE: Final = (1.2, 1.5)
HISTOGRAMS: Final = ("hybrid-histogram", "lsth")


def advisors(
    forecasts: Mapping[str, Forecaster], *, weight: Floats, capacity: Floats, slot_s: float
) -> dict[str, Advisor]:
    """Return everybody who has an opinion; forecasts first, the first of them leads first.

    ``weight`` is how many idle replicas a missing one is worth, ``capacity`` how many
    requests a replica serves in a slot, for each function.
    """
    count = len(weight)
    found: dict[str, Advisor] = {
        name: Hurdle(forecast, weight, capacity) for name, forecast in forecasts.items()
    }
    found["none"] = LastSlotRule(count, 0.0)
    found |= {f"keep-alive {slots}": Peak(count, slots) for slots in KEPT_SLOTS}
    found |= {f"last x {times:g}": LastSlotRule(count, times) for times in MORE}
    found |= {name: Kept(RULES[name](slot_s, count), count) for name in HISTOGRAMS}
    return found
