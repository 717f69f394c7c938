"""What jobs and functions suffer from each other, beside what was predicted.

Both sides are looked at again and again.  At the end of a slot the lender learns what was
measured, co-runs go to the machine's data set, and what is shown is replaced as a whole, so
that any thread may read it.
"""

from collections.abc import Iterable, Mapping
from math import nan
from typing import Final

from interlane.kernel.harvesting import gpu_id
from interlane.live.functions.deployed import Deployed
from interlane.live.functions.interference import Interference
from interlane.live.functions.lender import Compared, Lender, Slot
from interlane.live.functions.services import Place, Services, Slowed
from interlane.live.measure.coruns import Solo, Tell, function_name, is_function
from interlane.live.measure.monitor import Monitor
from interlane.live.measure.occupancy import Device

FULL: Final = 0.5
"""Part of its deadline that a call may take of a replica: the rest is for waiting."""


class Sides:
    """See the module's text."""

    def __init__(self, lender: Lender, monitor: Monitor, tell: Tell) -> None:
        self._lender = lender
        self._monitor = monitor
        self._tell = tell
        self._jobs = Interference()
        self._functions = Services(lender.gpu_types)
        self._called: set[Place] = set()
        """Functions that did something in this slot."""
        self._compared: Mapping[Place, Compared] = {}

    def watch(self, deployed: Deployed) -> None:
        """Begin to compare a function, or one that has changed."""
        item_s = deployed.terms.deadline_s / deployed.spec.batch.max
        self._functions.watch(function_name(deployed.name), FULL * item_s)

    def forget(self, name: str) -> None:
        """Compare a function no longer."""
        self._functions.forget(function_name(name))

    def limit(self, name: str) -> float:
        """Return how many times what it takes alone a function may take."""
        return self._functions.limit(function_name(name))

    def look(self, devices: Iterable[Device], functions: Iterable[Deployed]) -> None:
        """See how jobs get on, and what calls took."""
        tenants = {gpu_id(one.machine, one.gpu): one.jobs for one in devices}
        at_work = self._jobs.look(tenants, self._lender.devices)
        if at_work is not None:
            calls = _taken(functions)
            self._called |= calls.keys()
            self._functions.look(calls, at_work)

    def end_slot(self, now_s: float) -> list[str]:
        """Compare both sides, and tell of co-runs; return the replicas that must leave."""
        slot = Slot(self._jobs.end_slot(), self._functions.end_slot(), frozenset(self._called))
        self._called.clear()
        verdict = self._lender.measured(slot, now_s)
        self._show(verdict.compared)
        if verdict.coruns:
            self._tell(verdict.coruns, self._solos(slot.functions))
        return verdict.leaving

    def _show(self, newest: Mapping[Place, Compared]) -> None:
        """Show what was compared last, of those who are still there together."""
        there = self._lender.present()
        self._compared = {
            place: one
            for place, one in {**self._compared, **newest}.items()
            if {place, *(Place(name, place.gpu) for name in one.beside)} <= there
        }

    def _solos(self, slowed: Mapping[Place, Slowed]) -> dict[str, Solo]:
        seen = self._monitor.seen
        jobs = {} if seen is None else seen.named_solos
        return {
            **jobs,
            **{place.name: Solo(nan, nan, 1.0 / one.alone_s) for place, one in slowed.items()},
        }

    def of(self, name: str) -> list[Compared]:
        """Return what a job suffers, or a function as ``function_name`` calls it."""
        return [one for place, one in self._compared.items() if place.name == name]

    def jobs(self) -> list[tuple[str, Compared]]:
        """Return what jobs suffer."""
        return [
            (place.name, one)
            for place, one in self._compared.items()
            if not is_function(place.name)
        ]


def _taken(functions: Iterable[Deployed]) -> dict[Place, list[float]]:
    """Return what calls took since last asked."""
    taken: dict[Place, list[float]] = {}
    for one in functions:
        for replica in one.replicas:
            if replica.served_s:
                place = Place(function_name(one.name), replica.site.device.gpu)
                taken.setdefault(place, []).extend(replica.take_served_s())
    return taken
