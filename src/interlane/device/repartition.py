"""Cut one GPU up anew: wait for who holds it, change what must change, or leave all as it was.

Whatever fails half-way is looked at: a change that has happened all the same counts, one that
has not is tried once more, and if that does not help, what was there before is made again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from interlane.mig.layouts import Layout
from interlane.mig.partition import (
    GpuMode,
    GpuState,
    Partitioner,
    changes_to,
    check_target,
    gpu_named,
    holders_in_the_way,
)
from interlane.mig.transition.run import StepFailed
from interlane.model import InterlaneError, InvalidInput, UnknownName

LOOK_S: Final = 0.5
"""Between two looks at who holds a GPU."""
TRIES: Final = 2

Tell = Callable[[str], None]


class PartitionFailed(InterlaneError):
    """A GPU could not be cut up as asked for."""


@dataclass(frozen=True, slots=True)
class DrainWait:
    """How long whoever holds a GPU may take to leave it."""

    wait_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def repartition(
    gpus: Partitioner,
    name: str,
    target: Layout | None,
    waiting: DrainWait | None = None,
    tell: Tell = lambda said: None,
) -> GpuState:
    """Cut a GPU into a layout, or make it whole (None); return what it is then.

    Raises:
        InvalidInput: it cannot be cut so, or somebody holds it; nothing has changed.
        PartitionFailed: the driver refused; what was there before is there again, or the
            sentence says what is.
    """
    before = drained(gpus, name, target, waiting or DrainWait(), tell)
    why = _towards(gpus, before.id, target, tell)
    if why is None:
        return gpu_named(gpus.look(), before.id)
    was = None if before.mode is GpuMode.WHOLE else before.layout
    tell(f"{why} What was there before is made again.")
    undone = _towards(gpus, before.id, was, tell)
    if undone is None:
        raise PartitionFailed(f"{why} {before.id} is as it was before.")
    there = gpu_named(gpus.look(), before.id)
    places = " ".join(map(str, there.layout)) or "no slices"
    raise PartitionFailed(
        f"{why} What was there before cannot be made again either ({undone}): {before.id} is "
        f"{there.mode.value} with {places}; give the command again once the cause is mended."
    )


def drained(
    gpus: Partitioner, name: str, target: Layout | None, waiting: DrainWait, tell: Tell
) -> GpuState:
    """Wait until nobody holds what must change; return the GPU as it is then."""

    def held(gpu: GpuState) -> tuple[int, ...]:
        check_target(gpu, target)
        return holders_in_the_way(gpu, changes_to(gpu, target))

    gpu, left = until_free(gpus, name, held, waiting, tell)
    if left:
        raise InvalidInput(
            f"{gpu.id} is held by {named(left)}, so that nothing was changed; end what holds "
            "it, or wait for that with --wait."
        )
    return gpu


def until_free(
    gpus: Partitioner,
    name: str,
    held: Callable[[GpuState], tuple[int, ...]],
    waiting: DrainWait,
    tell: Tell = lambda said: None,
) -> tuple[GpuState, tuple[int, ...]]:
    """Wait for processes to leave; return the GPU, and those that did not in time."""
    until_s = waiting.clock() + waiting.wait_s
    told: tuple[int, ...] = ()
    while True:
        gpu = gpu_named(gpus.look(), name)
        left = held(gpu)
        if not left or waiting.clock() >= until_s:
            return gpu, left
        if left != told:
            tell(f"{gpu.id} is held by {named(left)}; waiting for the end of that.")
            told = left
        waiting.sleep(LOOK_S)


def named(processes: Sequence[int]) -> str:
    """Return processes in words."""
    listed = ", ".join(map(str, processes[:5]))
    more = "" if len(processes) <= 5 else f" and {len(processes) - 5} more"
    return f"process {listed}" if len(processes) == 1 else f"processes {listed}{more}"


def _towards(gpus: Partitioner, name: str, target: Layout | None, tell: Tell) -> str | None:
    """Change a GPU until it is as wanted; return why that cannot be, if so."""
    tries: dict[str, int] = {}
    while left := changes_to(_still(gpus, name), target):
        change = left[0]
        tries[str(change)] = tries.get(str(change), 0) + 1
        why = "it had no effect."
        try:
            change.apply(gpus)
        except StepFailed as error:
            why = str(error)
        if change not in changes_to(_still(gpus, name), target):
            tell(str(change))  # whatever the answer was: it has happened
        elif tries[str(change)] >= TRIES:
            return f"Cannot {change}: {why}"
        else:
            tell(f"{change}: {why}")
    return None


def _still(gpus: Partitioner, name: str) -> GpuState:
    """Return a GPU that was there before."""
    try:
        return gpu_named(gpus.look(), name)
    except UnknownName:
        raise PartitionFailed(f"{name} is lost: the driver lists it no more.") from None
