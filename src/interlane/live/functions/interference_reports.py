"""What jobs and functions suffer from each other, beside what was predicted.

Both sides are looked at again and again.  At the end of a slot the scheduler is told what was
measured, co-runs go to the machine's data set, and what is shown is replaced as a whole, so
that any thread may read it.
"""

from collections.abc import Iterable, Mapping
from math import nan
from typing import Final, TypeVar

from interlane.functions.events import FunctionEvent
from interlane.functions.ledger import DeviceLedger
from interlane.live.functions.colocation import (
    ComparedSlowdown,
    MeasuredSlot,
    Present,
    compare_slot,
    present,
)
from interlane.live.functions.deployed import Deployed
from interlane.live.functions.interference import Interference
from interlane.live.functions.replicas import FunctionDevice
from interlane.live.functions.services import Place, Services, Slowed
from interlane.live.measure.coruns import SoloSpeed, Tell, function_workload
from interlane.live.measure.monitor import Monitor
from interlane.live.measure.occupancy import DeviceUse
from interlane.model import GpuRef, JobId, Workload

FULL: Final = 0.5
"""Part of its deadline that a call may take of a replica: the rest is for waiting."""


class Sides:
    """See the module's text."""

    def __init__(self, ledger: DeviceLedger, monitor: Monitor, tell: Tell) -> None:
        self._ledger = ledger
        self._monitor = monitor
        self._tell = tell
        self._jobs = Interference()
        self.devices: dict[GpuRef, FunctionDevice] = {}
        self._gpu_types: dict[GpuRef, str] = {}
        """Of all devices that were ever there."""
        self._functions = Services(self._gpu_types)
        self._called: set[Place] = set()
        """Functions that did something in this slot."""
        self._of_jobs: Mapping[tuple[JobId, GpuRef], ComparedSlowdown] = {}
        self._of_functions: Mapping[Place, ComparedSlowdown] = {}

    def follow(self) -> None:
        """Learn which devices there are."""
        there = self._ledger.gpus.by_id
        self.devices = {gpu: self.devices.get(gpu) or FunctionDevice(gpu) for gpu in there}
        self._gpu_types |= {gpu: one.gpu_type for gpu, one in there.items()}

    def watch(self, deployed: Deployed) -> None:
        """Begin to compare a function, or one that has changed."""
        item_s = deployed.terms.deadline_s / deployed.spec.batch.max
        self._functions.watch(function_workload(deployed.name), FULL * item_s)

    def forget(self, name: str) -> None:
        """Compare a function no longer."""
        self._functions.forget(function_workload(name))

    def limit(self, name: str) -> float:
        """Return how many times what it takes alone a function may take."""
        return self._functions.limit(function_workload(name))

    def look(self, devices: Iterable[DeviceUse], functions: Iterable[Deployed]) -> None:
        """See how jobs get on, and what calls took."""
        tenants = {GpuRef(one.machine, one.gpu): one.jobs for one in devices}
        at_work = self._jobs.look(tenants, self.devices)
        if at_work is not None:
            calls = _taken(functions)
            self._called |= calls.keys()
            self._functions.look(calls, at_work)

    def end_slot(self, now_s: float) -> list[FunctionEvent]:
        """Compare both sides, and tell of co-runs; return what the scheduler is told."""
        slot = MeasuredSlot(
            self._jobs.end_slot(), self._functions.end_slot(), frozenset(self._called)
        )
        self._called.clear()
        verdict = compare_slot(slot, self._ledger, now_s)
        there = present(self._ledger)
        self._of_jobs = _shown({**self._of_jobs, **verdict.jobs}, there)
        self._of_functions = _shown({**self._of_functions, **verdict.functions}, there)
        if verdict.coruns:
            self._tell(verdict.coruns, self._solos(slot.functions))
        return verdict.events

    def _solos(self, slowed: Mapping[Place, Slowed]) -> dict[Workload, SoloSpeed]:
        seen = self._monitor.seen
        jobs = {} if seen is None else seen.named_solos
        return {
            **jobs,
            **{
                one.function: SoloSpeed(nan, nan, 1 / slow.alone_s)
                for one, slow in slowed.items()
            },
        }

    def of_job(self, job_id: JobId) -> list[ComparedSlowdown]:
        """Return what a job suffers, by device."""
        return [one for (who, _), one in self._of_jobs.items() if who == job_id]

    def of_function(self, name: str) -> list[ComparedSlowdown]:
        """Return what a function suffers, by device."""
        workload = function_workload(name)
        return [one for (who, _), one in self._of_functions.items() if who == workload]

    def jobs(self) -> list[tuple[JobId, ComparedSlowdown]]:
        """Return what jobs suffer."""
        return [(job_id, one) for (job_id, _), one in self._of_jobs.items()]


Where = TypeVar("Where", bound=tuple[object, GpuRef])


def _shown(
    compared: Mapping[Where, ComparedSlowdown], there: Present
) -> dict[Where, ComparedSlowdown]:
    """Return what was compared of those who are still there together."""
    return {
        where: one
        for where, one in compared.items()
        if {str(where[0]), *one.beside} <= there.get(where[1], frozenset())
    }


def _taken(functions: Iterable[Deployed]) -> dict[Place, list[float]]:
    """Return what calls took since last asked."""
    taken: dict[Place, list[float]] = {}
    for one in functions:
        for replica in one.replicas:
            if replica.served_s:
                place = Place(function_workload(one.name), replica.device.gpu)
                taken.setdefault(place, []).extend(replica.take_served_s())
    return taken
