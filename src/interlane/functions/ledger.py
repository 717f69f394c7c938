"""Which replicas are on which device beside which jobs, and what is left of each device.

Memory is held from the decision to load until nothing is left of a replica, so that actions
that are carried out never exceed a device, however long they take.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from interlane.functions.events import Held
from interlane.model import CapacityViolated, GpuRef, Machine
from interlane.model.function import Function
from interlane.policy.colocate.gpus import ColocatedGpu, Gpus, gpus_of
from interlane.policy.colocate.interference import SEVERAL, InterferenceModel
from interlane.policy.colocate.place import (
    Colocator,
    FunctionPlacement,
    fits,
    loss_at,
    loss_on,
)

MISSES: Final = 2
"""Measured violations in a row after which a function must go."""


class ReplicaPhase(StrEnum):
    """Where a replica stands."""

    LOADING = "loading"
    IDLE = "idle"
    BUSY = "busy"
    LEAVING = "leaving"


@dataclass(slots=True, eq=False)
class PlacedReplica:
    """A replica that has memory on a device."""

    number: int
    function: str
    need: Function
    gpu: ColocatedGpu
    phase: ReplicaPhase = ReplicaPhase.LOADING
    is_old: bool = False
    """Its function is gone, or is another version now."""


class DeviceLedger:
    """See the module's text."""

    def __init__(self, colocator: Colocator, model: InterferenceModel) -> None:
        self.colocator = colocator
        self.model = model
        self.gpus = Gpus()
        self.held: dict[GpuRef, tuple[Held, ...]] = {}
        self.replicas: dict[int, PlacedReplica] = {}
        self.by_function: dict[str, dict[int, PlacedReplica]] = {}
        self._cards: dict[GpuRef, tuple[str, int]] = {}
        """Type and memory of each device."""

    def card_mib(self) -> int:
        """Return the memory of the largest device."""
        return max((mib for _, mib in self._cards.values()), default=1)

    def could_hold(self, need: Function) -> bool:
        """Tell whether some device would have the memory if it were empty."""
        types = need.gpu_types
        return any(
            mib >= need.memory_mib and (not types or gpu_type in types)
            for gpu_type, mib in self._cards.values()
        )

    def least_known(
        self, functions: Iterable[Function]
    ) -> tuple[Function, list[ColocatedGpu]] | None:
        """Return the function that teaches most beside a job, and the devices of such jobs.

        That is who was never measured beside it, by how little is known of the two and on how
        many devices the same work runs; only those count that have no function yet.
        """
        unshared: dict[str, list[ColocatedGpu]] = {}
        for ref, held in self.held.items():
            gpu = self.gpus.by_id[ref]
            if len(held) == 1 and not gpu.functions and gpu.trainer is not None:
                unshared.setdefault(gpu.trainer, []).append(gpu)
        best, most = None, 0.0
        for function in functions:
            for job, gpus in unshared.items():
                doubt = self.model.doubt(gpus[0].gpu_type, job, function.workload)
                if doubt * len(gpus) > most:
                    best, most = (function, gpus), doubt * len(gpus)
        return best

    def payable(
        self, need: Function, gpus: Iterable[ColocatedGpu], span_s: float, now_s: float
    ) -> FunctionPlacement | None:
        """Return the first device whose job has saved up what a replica may cost it."""
        model = self.model.slowdowns
        mode = next(iter(model.modes))
        for gpu in gpus:
            slowdown = model.slowdown(mode, gpu.gpu_type, gpu.trainer, (), need)
            saved_s = self._settle(gpu, now_s)
            if fits(need, gpu) and loss_at(slowdown) * span_s <= saved_s:
                return FunctionPlacement(gpu, mode, slowdown)
        return None

    def gpu_type(self, gpu: GpuRef) -> str:
        """Return the type of a device."""
        return self._cards[gpu][0]

    def on(self, gpu: ColocatedGpu) -> list[PlacedReplica]:
        """Return the replicas on a device that are not leaving, the oldest first."""
        return [self.replicas[int(one.id)] for one in gpu.functions]

    def staying(self, function: str) -> list[PlacedReplica]:
        """Return the replicas of a function that are not leaving, the oldest first."""
        there = self.by_function.get(function, {}).values()
        return [one for one in there if one.phase is not ReplicaPhase.LEAVING]

    # -- replicas ---------------------------------------------------------------------

    def place(
        self, number: int, function: str, need: Function, site: FunctionPlacement, now_s: float
    ) -> PlacedReplica:
        """Hold a place for a replica."""
        gpu = site.gpu
        self._settle(gpu, now_s)
        gpu.mode, gpu.loss = site.mode, loss_at(site.slowdown)
        gpu.functions.append(need)
        gpu.use += need.use
        self.gpus.note_warm(need.workload, gpu)
        made = self.replicas[number] = PlacedReplica(number, function, need, gpu)
        self.by_function.setdefault(function, {})[number] = made
        self._take(gpu, need.memory_mib)
        return made

    def leave(self, replica: PlacedReplica, now_s: float) -> None:
        """Note that a replica leaves; nobody else gets its memory before it is gone."""
        gpu, need = replica.gpu, replica.need
        replica.phase = ReplicaPhase.LEAVING
        self._settle(gpu, now_s)
        gpu.functions.remove(need)
        gpu.late.discard(need.id)
        gpu.use -= need.use
        if all(other.workload != need.workload for other in gpu.functions):
            self.gpus.note_cold(need.workload, gpu)
        self._changed(gpu, now_s)

    def gone(self, replica: PlacedReplica, now_s: float) -> None:
        """Note that nothing is left of a replica."""
        if replica.phase is not ReplicaPhase.LEAVING:
            self.leave(replica, now_s)
        del self.replicas[replica.number]
        of_function = self.by_function[replica.function]
        del of_function[replica.number]
        if not of_function:
            del self.by_function[replica.function]
        self._take(replica.gpu, -replica.need.memory_mib)

    def _take(self, gpu: ColocatedGpu, memory_mib: int) -> None:
        gpu.memory_mib -= memory_mib
        if self.gpus.by_id.get(gpu.id) is gpu:
            self.gpus.place_in_index(gpu)

    # -- devices and jobs -------------------------------------------------------------

    def follow(self, machines: Iterable[Machine], now_s: float) -> list[PlacedReplica]:
        """Learn which devices there are; return the replicas on those that are gone."""
        found = {gpu.id: gpu for gpu in gpus_of(machines)}
        cards = {ref: (gpu.gpu_type, gpu.memory_mib) for ref, gpu in found.items()}
        displaced: list[PlacedReplica] = []
        for gpu in list(self.gpus.order):
            if cards.get(gpu.id) != self._cards[gpu.id]:
                displaced += self.on(gpu)
                for one in self.on(gpu):
                    self.leave(one, now_s)
                self.gpus.remove(gpu)
                self.held.pop(gpu.id, None)
        for ref, gpu in found.items():
            if ref not in self.gpus.by_id:
                self.gpus.add(gpu)
                self._inherit(gpu)
        self._cards = cards
        self.model.meet(gpu_types=[gpu_type for gpu_type, _ in cards.values()])
        return displaced

    def _inherit(self, gpu: ColocatedGpu) -> None:
        """Count replicas that are still leaving where a device is back again."""
        for one in self.replicas.values():
            if one.gpu.id == gpu.id and one.phase is ReplicaPhase.LEAVING:
                one.gpu = gpu
                self._take(gpu, one.need.memory_mib)

    def hold(self, ref: GpuRef, held: tuple[Held, ...], now_s: float) -> bool:
        """Learn what jobs hold of a device; tell whether functions there may be in the way."""
        old = self.held.get(ref, ())
        if held == old or ref not in self.gpus.by_id:
            return False
        gpu = self.gpus.by_id[ref]
        if old:
            gpu.trainer = None
            gpu.memory_mib += sum(one.memory_mib for one in old)
            gpu.use -= sum(one.use for one in old)
            del self.held[ref]
        if held:
            workload = held[0].workload if len(held) == 1 else SEVERAL
            self.model.meet(jobs=[str(workload), *(str(one.workload) for one in held)])
            gpu.trainer, gpu.tokens_s = str(workload), 0.0
            gpu.memory_mib -= sum(one.memory_mib for one in held)
            gpu.use += sum(one.use for one in held)
            gpu.loss, gpu.settled_s = 0.0, now_s
            self.held[ref] = held
        gpu.forgive()
        self._changed(gpu, now_s)
        return bool(held)

    def is_crowded(self, gpu: ColocatedGpu) -> bool:
        """Tell whether functions must leave a device for the memory that its jobs need.

        Memory of those that are leaving already is as good as free.
        """
        leaving = (
            one.need.memory_mib
            for one in self.replicas.values()
            if one.gpu is gpu and one.phase is ReplicaPhase.LEAVING
        )
        return bool(gpu.functions) and gpu.memory_mib < 0 and gpu.memory_mib + sum(leaving) < 0

    # -- what is measured -------------------------------------------------------------

    def judge(
        self, ref: GpuRef, job: float | None, p99: Mapping[int, float], now_s: float
    ) -> PlacedReplica | None:
        """Take a measurement of a device in; return the replica that must go, if one must.

        What was not measured neither breaks a promise nor keeps one.  The second violation in
        a row takes away the function that costs most, itself or training.
        """
        gpu = self.gpus.by_id.get(ref)
        if gpu is None or not gpu.functions or not self.colocator.evicts:
            return None
        tokens_s = self._settle(gpu, now_s)
        measured = {
            one.id: p99[int(one.id)] > one.p99_limit
            for one in gpu.functions
            if int(one.id) in p99
        }
        if job is not None:
            gpu.loss = 1.0 - 1.0 / max(1.0, job)
            gpu.is_trainer_late = gpu.loss > self.colocator.limit and tokens_s <= 0
        gpu.late -= measured.keys()
        gpu.late |= {name for name, is_late in measured.items() if is_late}
        if (job is not None and gpu.is_trainer_late) or any(measured.values()):
            gpu.misses += 1
        elif not gpu.late and not gpu.is_trainer_late:
            gpu.misses = 0
        if gpu.misses < MISSES:
            return None
        gpu.misses = 0
        return self.worst(gpu)

    def worst(self, gpu: ColocatedGpu) -> PlacedReplica:
        """Return the replica that costs most on a device, itself or training."""
        return max(self.on(gpu), key=lambda one: self._alone(gpu, one.need))

    def _alone(self, gpu: ColocatedGpu, need: Function) -> float:
        slowdown = self.model.slowdowns.slowdown(gpu.mode, gpu.gpu_type, gpu.trainer, (), need)
        return max(slowdown.training, slowdown.p99)

    def _settle(self, gpu: ColocatedGpu, now_s: float) -> float:
        return gpu.settle(now_s, self.colocator.limit, self.colocator.window_s)

    def _changed(self, gpu: ColocatedGpu, now_s: float) -> None:
        self._settle(gpu, now_s)
        gpu.loss = loss_on(gpu, self.model.slowdowns)
        if self.gpus.by_id.get(gpu.id) is gpu:
            self.gpus.place_in_index(gpu)

    # -- checks -----------------------------------------------------------------------

    def without(self, gpu: ColocatedGpu, replicas: Iterable[PlacedReplica]) -> ColocatedGpu:
        """Return a device as it would be without some replicas."""
        gone = {one.need.id: one.need.memory_mib for one in replicas}
        staying = [one for one in gpu.functions if one.id not in gone]
        # Who is leaving keeps its memory until it is gone, and nothing busy.
        use = gpu.use - sum(one.use for one in gpu.functions if one.id in gone)
        memory_mib = gpu.memory_mib + sum(gone.values())
        return replace(gpu, functions=staying, memory_mib=memory_mib, use=use)

    def check(self) -> None:
        """Count everything anew and compare; raise where the state is wrong."""
        for ref, gpu in self.gpus.by_id.items():
            here = [one for one in self.replicas.values() if one.gpu is gpu]
            mib = sum(one.need.memory_mib for one in here)
            jobs_mib = sum(one.memory_mib for one in self.held.get(ref, ()))
            _must(
                gpu.memory_mib == self._cards[ref][1] - mib - jobs_mib,
                f"the memory of {ref} is miscounted",
            )
            staying = {one.number for one in here if one.phase is not ReplicaPhase.LEAVING}
            _must(staying == {one.number for one in self.on(gpu)}, f"replicas of {ref}")
            _must(
                gpu.memory_mib >= 0 or not staying or jobs_mib > 0,
                f"{ref} holds more than it has",
            )


def _must(holds: bool, what: str) -> None:  # noqa: FBT001 - an assertion in words
    if not holds:
        raise CapacityViolated(what)
