"""One protocol for cutting a GPU up: what there is, and the few changes that there are.

Who decides about slices knows ``GpuState`` and ``Partitioner`` only.  Behind them are NVIDIA's
library and program, or GPUs that are emulated on this machine.  A change has happened or not
when it returns, and ``look`` tells which, whatever went wrong in between: so whoever finds GPUs
half-way looks, and goes on with ``changes_to``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from interlane.mig.layouts import Layout, SlicePlace, broken_rule
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan
from interlane.mig.profiles import gpu_model
from interlane.model import InvalidField, InvalidInput, UnknownName


class GpuMode(StrEnum):
    """How a GPU is given away."""

    WHOLE = "whole"
    SLICED = "sliced"


@dataclass(frozen=True, slots=True)
class SliceState:
    """A slice that is there."""

    place: SlicePlace
    uuid: str = ""
    """What programs call it; empty while it is half-made and nothing can run in it."""
    processes: tuple[int, ...] = ()
    """Those that hold it."""
    number: int = 0
    """By which its driver knows it."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU as it is now."""

    id: str
    """``gpu-3`` is the one with index 3."""
    uuid: str
    name: str
    """As the driver calls it."""
    model: str = ""
    """As the catalogue calls it; empty if it does not know it."""
    mode: GpuMode = GpuMode.WHOLE
    pending: GpuMode = GpuMode.WHOLE
    """Its mode after a reset."""
    slices: tuple[SliceState, ...] = ()
    """In the order of their starts."""
    processes: tuple[int, ...] = ()
    """All that hold it, or one of its slices."""
    emulated: bool = False

    @property
    def layout(self) -> Layout:
        """Where slices are, half-made ones included."""
        return tuple(sorted(one.place for one in self.slices))

    def slice_at(self, place: SlicePlace) -> SliceState | None:
        """Return the slice at a place, if there is one."""
        return next((one for one in self.slices if one.place == place), None)


class Partitioner(Protocol):
    """Cuts GPUs up; a change that cannot be made now raises ``StepFailed``."""

    def look(self) -> tuple[GpuState, ...]:
        """Return what there is now."""
        ...

    def set_mode(self, gpu: str, mode: GpuMode) -> None:
        """Put a GPU into a mode; nothing may hold it, and no slice may be there."""
        ...

    def create(self, gpu: str, place: SlicePlace) -> None:
        """Cut a slice out of free units, or complete one that is half-made."""
        ...

    def destroy(self, gpu: str, place: SlicePlace) -> None:
        """Give a slice's units back; nothing may run in it."""
        ...

    def reset(self, gpu: str) -> None:
        """Reset a GPU that nothing holds: what waited for that takes effect."""
        ...


class Change(StrEnum):
    """What is done to a GPU."""

    DESTROY = "destroy"
    MODE = "mode"
    CREATE = "create"


@dataclass(frozen=True, slots=True)
class GpuChange:
    """One change of a GPU."""

    kind: Change
    gpu: str
    place: SlicePlace | None = None
    mode: GpuMode = GpuMode.SLICED

    def __str__(self) -> str:
        if self.place is None:
            return f"let {self.gpu} be {self.mode.value}"
        return f"{self.kind.value} {self.place} on {self.gpu}"

    def apply(self, gpus: Partitioner) -> None:
        """Let somebody make it."""
        if self.place is None:
            gpus.set_mode(self.gpu, self.mode)
        elif self.kind is Change.CREATE:
            gpus.create(self.gpu, self.place)
        else:
            gpus.destroy(self.gpu, self.place)


def gpu_named(states: Sequence[GpuState], name: str) -> GpuState:
    """Return the GPU of an id or identifier."""
    for one in states:
        if name in (one.id, one.uuid, one.id.removeprefix("gpu-")):
            return one
    raise UnknownName("GPU", name, [one.id for one in states])


def layout_of(words: Iterable[str]) -> Layout:
    """Return the places that ``3g.20gb@0 1g.5gb@4`` names."""
    found = []
    for word in words:
        profile, at, start = word.partition("@")
        if not at or not (start.isascii() and start.isdigit() and len(start) < 4):
            raise InvalidField("place", word, "it reads PROFILE@START, as in 3g.20gb@4")
        found.append(SlicePlace(int(start), profile))
    return tuple(sorted(found))


def check_target(gpu: GpuState, target: Layout | None) -> None:
    """Refuse what a GPU can never be; None means whole."""
    if target is None:
        return
    if not gpu.model:
        raise InvalidInput(
            f"{gpu.id} is a {gpu.name}, of which no MIG profiles are known; "
            "`interlane mig profiles` lists the GPU models that are."
        )
    broken = broken_rule(gpu_model(gpu.model), target)
    if broken is not None:
        raise InvalidInput(f"{gpu.id} is a {gpu.model}, which cannot be cut so: {broken}")


def changes_to(gpu: GpuState, target: Layout | None) -> list[GpuChange]:
    """Return what leads from what is there to a layout (None: whole), in order.

    Slices that are wanted stay as they are; half-made ones are completed.
    """
    wanted = () if target is None else target
    mode = GpuMode.WHOLE if target is None else GpuMode.SLICED
    found = [
        GpuChange(Change.DESTROY, gpu.id, place) for place in gpu.layout if place not in wanted
    ]
    if (gpu.mode, gpu.pending) != (mode, mode):
        found.append(GpuChange(Change.MODE, gpu.id, None, mode))
    for place in wanted:
        there = gpu.slice_at(place)
        if there is None or not there.uuid:
            found.append(GpuChange(Change.CREATE, gpu.id, place))
    return found


def holders_in_the_way(gpu: GpuState, changes: Iterable[GpuChange]) -> tuple[int, ...]:
    """Return the processes that must leave before the changes can be made."""
    listed = list(changes)
    if any(one.kind is Change.MODE for one in listed):
        return gpu.processes
    gone = {one.place for one in listed if one.kind is Change.DESTROY}
    return tuple(
        sorted({pid for one in gpu.slices if one.place in gone for pid in one.processes})
    )


def plan_of(states: Iterable[GpuState]) -> PartitionPlan:
    """Return what is there as plans and transitions know it; nothing is said of services."""
    return PartitionPlan(
        tuple(
            GpuPlan(
                one.id,
                one.model,
                tuple(Instance(place.profile, place.start) for place in one.layout),
            )
            for one in states
            if one.model
        )
    )


def state_document(states: Iterable[GpuState]) -> dict[str, Any]:
    """Return what is there as a document that ``mig transition --from`` reads.

    GPUs that the catalogue does not know cannot be planned with, and are listed apart.
    """
    listed = list(states)
    return {
        "gpus": [_document(one) for one in listed if one.model],
        "others": [{**_document(one), "instances": []} for one in listed if not one.model],
    }


def _document(gpu: GpuState) -> dict[str, Any]:
    return {
        "id": gpu.id,
        "model": gpu.model,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "emulated": gpu.emulated,
        "mode": gpu.mode.value,
        "pending": gpu.pending.value,
        "held_by": list(gpu.processes),
        "instances": [
            {
                "profile": one.place.profile,
                "placement": f"{one.place.start}:"
                f"{gpu_model(gpu.model).profile(one.place.profile).size}",
                "uuid": one.uuid,
                "held_by": list(one.processes),
            }
            for one in gpu.slices
        ],
    }
