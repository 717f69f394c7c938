"""Who is on which GPU, what is left of it, and what its training job may still lose.

A training job may lose a part of its time *over a window*, not at every moment: it earns
tokens of lost time at a steady rate and pays for what neighbours cost it.  A short visit that
costs more than the rate is fine while there are tokens.  The level is settled when somebody
asks, so that nothing runs in the background.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from interlane.model import Cluster
from interlane.model.function import Function

LIMIT: Final = 0.1
"""Part of its time that a training job may lose."""
WINDOW_S: Final = 3_600.0
BURST: Final = 0.1
"""Part of a window's lost time that can be saved up, and is kept back from what is earned."""
SEVERAL: Final = ""
"""Workload of a GPU on which several jobs train: what they bear together is not known."""


@dataclass(slots=True)
class Gpu:
    """One GPU with a training job on it, or none, and functions beside."""

    id: str
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
    """Who was slower than it may be when it was last measured."""

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
        self.misses, self.late = 0, set()


class Gpus:
    """All GPUs, indexed by what could be placed there: type, free memory, tokens left."""

    def __init__(self, gpus: list[Gpu]) -> None:
        self.by_id = {gpu.id: gpu for gpu in gpus}
        self.order = list(gpus)
        """The same in a fixed order, for blind draws."""
        self._buckets: dict[tuple[str, int, int], list[Gpu]] = {}
        self._at: dict[str, tuple[tuple[str, int, int], int]] = {}
        """Where each GPU stands in the index."""
        self._warm: dict[str, dict[str, None]] = {}
        """Workload -> GPUs on which it runs, in the order they came."""
        for gpu in gpus:
            self.place_in_index(gpu)

    def __len__(self) -> int:
        return len(self.order)

    def place_in_index(self, gpu: Gpu) -> None:
        """Put a GPU where it belongs after something about it has changed; O(1)."""
        key = gpu.gpu_type, gpu.memory_mib.bit_length(), int(gpu.tokens_s > 0)
        old = self._at.get(gpu.id)
        if old is not None and old[0] == key:
            return
        if old is not None:
            members, place = self._buckets[old[0]], old[1]
            last = members.pop()
            if last is not gpu:
                members[place] = last
                self._at[last.id] = old[0], place
        members = self._buckets.setdefault(key, [])
        self._at[gpu.id] = key, len(members)
        members.append(gpu)

    def note_warm(self, workload: str, gpu: Gpu) -> None:
        """Remember that a workload's model is on a GPU."""
        self._warm.setdefault(workload, {})[gpu.id] = None

    def note_cold(self, workload: str, gpu: Gpu) -> None:
        """Forget it."""
        self._warm.get(workload, {}).pop(gpu.id, None)

    def is_warm(self, workload: str, gpu: Gpu) -> bool:
        """Tell whether a workload's model is on a GPU."""
        return gpu.id in self._warm.get(workload, ())

    def warm(self, workload: str, most: int) -> Iterator[Gpu]:
        """Yield a few GPUs on which the workload's model is."""
        for place, gpu_id in enumerate(self._warm.get(workload, ())):
            if place == most:
                return
            yield self.by_id[gpu_id]

    def draw(self, function: Function, most: int, dice: Random) -> list[Gpu]:
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
            drawn = _drawn(members, dice.sample(range(total), most))
        return [gpu for gpu in drawn if gpu.memory_mib >= function.memory_mib]


def _drawn(buckets: list[list[Gpu]], places: list[int]) -> list[Gpu]:
    """Return the members at these places of the buckets laid end to end."""
    found, first, bucket = [], 0, 0
    for place in sorted(places):
        while place >= first + len(buckets[bucket]):
            first += len(buckets[bucket])
            bucket += 1
        found.append(buckets[bucket][place - first])
    return found


def gpus_of(cluster: Cluster) -> Gpus:
    """Return the GPUs of a cluster, all of them idle; pooled machines lend nothing."""
    return Gpus(
        [
            Gpu(gpu_id(machine.id, number), device.type, device.memory_mib)
            for machine in cluster
            if not machine.pooled
            for number in range(machine.gpus)
            for device in (machine.device(number),)
        ]
    )


def gpu_id(machine: str, number: int) -> str:
    """Return the name of a GPU."""
    return f"{machine}/{number}"
