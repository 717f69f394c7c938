"""Who is on which GPU, what is left of it, and what its training job may still lose.

A training job may lose a part of its time *over a window*, not at every moment: it earns
tokens of lost time at a steady rate and pays for what neighbours cost it.  A short visit that
costs more than the rate is fine while there are tokens.  The level is settled when somebody
asks, so that nothing runs in the background.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Final

from interlane.model import GpuRef, Machine
from interlane.model.function import Function

LIMIT: Final = 0.1
"""Part of its time that a training job may lose."""
WINDOW_S: Final = 3_600.0
BURST: Final = 0.1
"""Part of a window's lost time that can be saved up, and is kept back from what is earned."""


@dataclass(slots=True, eq=False)
class ColocatedGpu:
    """One GPU with a training job on it, or none, and functions beside."""

    id: GpuRef
    gpu_type: str
    memory_mib: int
    """What training leaves over and functions have not taken."""
    trainer: str | None = None
    """Workload of the training job."""
    functions: list[Function] = field(default_factory=list)
    mode: str = ""
    """How functions share with training here; chosen with the first of them."""
    use: float = 0.0
    """Share of the GPU that is kept busy, training included."""
    loss: float = 0.0
    """Part of its time that the training job loses now, as predicted or measured."""
    tokens_s: float = 0.0
    """Lost time that the training job can still bear, in seconds."""
    settled_s: float = 0.0
    misses: int = 0
    """Measured violations in a row."""
    late: set[str] = field(default_factory=set)
    """Functions that were slower than they may be when they were last measured."""
    is_trainer_late: bool = False
    """Whether the training job was."""

    def settle(self, now_s: float, limit: float, window_s: float) -> float:
        """Return the lost time that can still be borne, as of now."""
        passed_s = max(0.0, now_s - self.settled_s)
        full_s = limit * window_s * BURST
        # What is earned over a window and what was saved up before make the limit, not more.
        earned = limit * (1.0 - BURST)
        self.tokens_s = min(full_s, self.tokens_s + passed_s * (earned - self.loss))
        self.settled_s = now_s
        return self.tokens_s

    def forgive(self) -> None:
        """Forget violations: they were somebody else's."""
        self.misses, self.late, self.is_trainer_late = 0, set(), False


class Gpus:
    """All GPUs, indexed by what could be placed there: type, free memory, tokens left."""

    def __init__(self, gpus: Iterable[ColocatedGpu] = ()) -> None:
        self.by_id: dict[GpuRef, ColocatedGpu] = {}
        self.order: list[ColocatedGpu] = []
        """The same in a fixed order, for blind draws."""
        self._buckets: dict[tuple[str, int, int], list[ColocatedGpu]] = {}
        self._at: dict[ColocatedGpu, tuple[tuple[str, int, int], int]] = {}
        """Where each GPU stands in the index."""
        self._warm: dict[str, dict[ColocatedGpu, None]] = {}
        """Workload -> GPUs on which it runs, in the order they came."""
        for gpu in gpus:
            self.add(gpu)

    def __len__(self) -> int:
        return len(self.order)

    def add(self, gpu: ColocatedGpu) -> None:
        """Take in a GPU that has come."""
        self.by_id[gpu.id] = gpu
        self.order.append(gpu)
        self.place_in_index(gpu)

    def remove(self, gpu: ColocatedGpu) -> None:
        """Forget a GPU that is gone."""
        del self.by_id[gpu.id]
        self.order.remove(gpu)
        self._take_out_of_index(gpu)
        for there in self._warm.values():
            there.pop(gpu, None)

    def place_in_index(self, gpu: ColocatedGpu) -> None:
        """Put a GPU where it belongs after something about it has changed; O(1)."""
        key = gpu.gpu_type, gpu.memory_mib.bit_length(), int(gpu.tokens_s > 0)
        old = self._at.get(gpu)
        if old is not None:
            if old[0] == key:
                return
            self._take_out_of_index(gpu)
        members = self._buckets.setdefault(key, [])
        self._at[gpu] = key, len(members)
        members.append(gpu)

    def _take_out_of_index(self, gpu: ColocatedGpu) -> None:
        key, place = self._at.pop(gpu)
        members = self._buckets[key]
        last = members.pop()
        if last is not gpu:
            members[place] = last
            self._at[last] = key, place

    def note_warm(self, workload: str, gpu: ColocatedGpu) -> None:
        """Remember that a workload's model is on a GPU."""
        self._warm.setdefault(workload, {})[gpu] = None

    def note_cold(self, workload: str, gpu: ColocatedGpu) -> None:
        """Forget it."""
        self._warm.get(workload, {}).pop(gpu, None)

    def is_warm(self, workload: str, gpu: ColocatedGpu) -> bool:
        """Tell whether a workload's model is on a GPU."""
        return gpu in self._warm.get(workload, ())

    def warm(self, workload: str, most: int) -> Iterator[ColocatedGpu]:
        """Yield a few GPUs on which the workload's model is."""
        yield from islice(self._warm.get(workload, ()), most)

    def draw(self, function: Function, most: int, rng: Random) -> list[ColocatedGpu]:
        """Return up to so many GPUs that have room, all of them if there are no more.

        Buckets say beforehand which GPUs are out of the question, so that no draw is wasted
        on them; in the bucket of the function's own size it may still not fit.
        """
        least = function.memory_mib.bit_length()
        members = [
            bucket
            for (gpu_type, size, _), bucket in self._buckets.items()
            if size >= least
            and bucket
            and (not function.gpu_types or gpu_type in function.gpu_types)
        ]
        total = sum(map(len, members))
        if total <= most:
            drawn = [gpu for bucket in members for gpu in bucket]
        else:
            drawn = _drawn(members, rng.sample(range(total), most))
        return [gpu for gpu in drawn if gpu.memory_mib >= function.memory_mib]


def _drawn(buckets: list[list[ColocatedGpu]], places: list[int]) -> list[ColocatedGpu]:
    """Return the members at these places of the buckets laid end to end."""
    found, first, bucket = [], 0, 0
    for place in sorted(places):
        while place >= first + len(buckets[bucket]):
            first += len(buckets[bucket])
            bucket += 1
        found.append(buckets[bucket][place - first])
    return found


def gpus_of(machines: Iterable[Machine]) -> list[ColocatedGpu]:
    """Return the GPUs of machines, all of them idle.

    Pooled machines do not tell theirs apart and lend nothing, nor do devices that are lost.
    """
    return [
        ColocatedGpu(GpuRef(machine.id, number), device.type, device.memory_mib)
        for machine in machines
        if not machine.pooled
        for number in range(machine.gpus)
        if (device := machine.device(number)).compute_milli
    ]
