"""Events about slots in, actions about replicas out.

When a slot has passed, replicas that nobody wants any more
part, and those that are wanted are loaded ahead of their requests, most worthy first.  What
a replica is worth is the requests that are expected while it would stay, times what a cold
start would cost, per MiB.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from interlane.functions.advise import Advisor
from interlane.functions.costs import Costs, Prices, costs_of, horizon, is_worth_it, within
from interlane.functions.pool import NoRoom, Pool, PoolAction, Unload
from interlane.functions.rank import Later
from interlane.predict.arrivals.live import Forecaster

LEAST_GAIN: Final = 0.1
"""What loading ahead must gain where others part for it, as a part of the cold start."""


class Prewarmer:
    """Keeps the right replicas on one device."""

    def __init__(
        self,
        pool: Pool,
        forecast: Forecaster,
        advisor: Advisor,
        *,
        slot_s: float,
        capacity: Mapping[str, float] | None = None,
        prices: Prices | None = None,
    ) -> None:
        """``forecast`` and ``advisor`` see the pool's functions in its order.

        ``capacity`` is how many requests a replica serves in a slot, one unless given.
        """
        self.pool = pool
        self.forecast = forecast
        self.advisor = advisor
        self.slot_s = slot_s
        self.prices = prices or Prices()
        self.names = tuple(pool.functions)
        self._capacity = np.array([(capacity or {}).get(name, 1.0) for name in self.names])
        self._place = {name: place for place, name in enumerate(self.names)}
        self._later = Later(len(self.names))
        self._tell_chances()

    def _tell_chances(self) -> None:
        told: list[float] = self.forecast.chances().tolist()
        self._chances = dict(zip(self.names, told, strict=True))

    # -- events ------------------------------------------------------------------------

    def _load(self, name: str) -> tuple[PoolAction, ...] | NoRoom:
        """Ask for a replica, and learn for how long those that part were not asked."""
        found = self.pool.load(name, self.worth)
        if not isinstance(found, NoRoom):
            for action in found:
                if isinstance(action, Unload):
                    self._later.parted(self._place[action.function])
        return found

    def slot_passed(self, counts: Mapping[str, float]) -> tuple[PoolAction, ...]:
        """Learn the requests of a slot, and ask for what the next one will need.

        A function that is not named was not asked.
        """
        asked = np.array([float(counts.get(name, 0.0)) for name in self.names])
        self.advisor.passed(asked, np.ceil(asked / self._capacity))
        self._later.passed(asked)
        self._tell_chances()
        wanted = dict(zip(self.names, self.advisor.wanted().astype(int).tolist(), strict=True))
        return (*self._parting(wanted), *self._loading(wanted))

    # -- what is worth what -----------------------------------------------------------

    def costs(self, name: str) -> Costs:
        """Return what is at stake for a function, were it not on the device."""
        return costs_of(
            self.pool.functions[name],
            self.prices,
            slot_s=self.slot_s,
            device_mib=self.pool.device_mib,
        )

    def worth(self, name: str) -> float:
        """Return what having a function warm is worth while it would stay, per MiB."""
        expected = self._chances[name] + self._later.worth(self._place[name])
        return expected * self.costs(name).cold / self.pool.functions[name].memory_mib

    # -- actions -----------------------------------------------------------------------

    def _parting(self, wanted: Mapping[str, int]) -> tuple[PoolAction, ...]:
        actions: list[PoolAction] = []
        for name in self.names:
            spare = min(self.pool.idle(name), self.pool.replicas(name) - wanted[name])
            for _ in range(spare):
                actions.append(self.pool.part(name))
        return tuple(actions)

    def _loading(self, wanted: Mapping[str, int]) -> tuple[PoolAction, ...]:
        actions: list[PoolAction] = []
        lacking = [name for name in self.names if wanted[name] > self.pool.replicas(name)]
        for name in sorted(lacking, key=self.worth, reverse=True):
            for _ in range(wanted[name] - self.pool.replicas(name)):
                if not self._pays(name):
                    break
                found = self._load(name)
                if isinstance(found, NoRoom):
                    break
                actions += found
        return tuple(actions)

    def _pays(self, name: str) -> bool:
        """Tell whether loading ahead is worth its cost and what must part for it."""
        costs = self.costs(name)
        # One more beside a replica that is there is copied on the device, in no time.
        is_there = self.pool.is_there(name)
        load_s = 0.0 if is_there else self.pool.functions[name].disk_load_s
        slots = horizon(load_s, self.slot_s)
        chance = within(self._chances[name], slots)
        if not is_worth_it(chance, costs, is_loaded=False):
            return False
        parting = self.pool.parting(name, self.worth)
        if not parting:
            return parting is not None
        lost = sum(self._chances[one] * self.costs(one).cold for one in parting)
        return chance * costs.cold - lost > LEAST_GAIN * costs.cold
