"""Where a function goes: SMore's rule, and ours.

SMore (Algorithm 1): take the waiting function with the highest gain over slowdown, draw d
GPUs blindly, leave out those without room and those that would lose too much, take the least
degrading one, or the first when in a hurry; else the function waits again.

Ours decides on bounds instead of estimates, draws from GPUs that have room, counts what the
function itself suffers and a cold start, lets training lose a part of its time over a window
rather than at every moment, chooses how to share, and takes a function away again (never the
training job) when measurements broke the promise twice in a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Final, Protocol

from interlane.model import GpuRef, InvalidField, Refusal, Tier
from interlane.model.function import Function
from interlane.policy.colocate.gpus import LIMIT, WINDOW_S, ColocatedGpu, Gpus
from interlane.policy.colocate.slowdown import Slowdown, Slowdowns

DRAWS: Final = 32
"""GPUs that are looked at for a function when nobody else waits."""
LEAST_DRAWS: Final = 8
WARM_DRAWS: Final = 4
MISSES: Final = 2
"""Measured violations in a row after which a function must go."""
NOTICED_S: Final = 180.0
"""Seconds in which that many have been measured."""
COLD_COST: Final = 0.2
"""What a cold start counts against a GPU, as a slowdown."""
LEAST_COST: Final = 0.01
NOBODY: Final[Mapping[str, GpuRef]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FunctionPlacement:
    """Where a function goes, and how it shares the GPU there."""

    gpu: ColocatedGpu
    mode: str
    slowdown: Slowdown
    is_warm: bool = False
    instead: tuple[Function, ...] = ()
    """Idle functions that leave the GPU for it."""


class Colocator(Protocol):
    """Says where a function goes, or why it waits."""

    def priority(self, function: Function, gpus: Gpus) -> float:
        """Return how much placing it is worth; the largest goes first."""
        ...

    def place(
        self, function: Function, gpus: Gpus, waiting: int, now_s: float, rng: Random
    ) -> FunctionPlacement | Refusal:
        """Return where it goes, given how many others wait."""
        ...


NOWHERE: Final = Refusal(
    Tier.CAPACITY,
    "No GPU that was looked at has the memory and bears the slowdown.",
    "It is tried again; lower its memory or allow more slowdown.",
)


def expected_priority(function: Function, gpus: Gpus, slowdowns: Slowdowns) -> float:
    """Return the gain in use over the slowdown beside typical training jobs."""
    costs = [
        _slowdown(slowdowns, next(iter(slowdowns.modes)), gpu, function).training - 1.0
        for gpu in gpus.order[:: max(1, len(gpus) // 8)]
    ]
    return function.use / max(LEAST_COST, sum(costs) / len(costs))


@dataclass
class Smore:
    """SMore's Algorithm 1, on point estimates."""

    slowdowns: Slowdowns
    choices: int = 8
    limit: float = LIMIT
    hurry_from: int = 64
    """Functions waiting from which the first acceptable GPU is taken."""
    mode: str = ""

    def __post_init__(self) -> None:
        if self.choices < 1:
            raise InvalidField("choices", self.choices, "it must be 1 or more")
        self.mode = self.mode or next(iter(self.slowdowns.modes))

    def priority(self, function: Function, gpus: Gpus) -> float:
        """Return expected gain over expected slowdown."""
        return expected_priority(function, gpus, self.slowdowns)

    def place(
        self, function: Function, gpus: Gpus, waiting: int, now_s: float, rng: Random
    ) -> FunctionPlacement | Refusal:
        """Return the least degrading of d random GPUs that is acceptable."""
        best: FunctionPlacement | None = None
        for number in rng.sample(range(len(gpus)), min(self.choices, len(gpus))):
            gpu = gpus.order[number]
            if not _fits(function, gpu):
                continue
            slowdown = _slowdown(self.slowdowns, self.mode, gpu, function)
            if slowdown.training > 1.0 + self.limit or slowdown.own > function.p99_limit:
                continue
            site = FunctionPlacement(
                gpu, self.mode, slowdown, gpus.is_warm(function.workload, gpu)
            )
            if waiting >= self.hurry_from:
                return site
            if best is None or slowdown.training < best.slowdown.training:
                best = site
        return best or NOWHERE


@dataclass
class Bounded:
    """Ours: bounds, a budget over a window, the function's own p99, warm GPUs first."""

    slowdowns: Slowdowns
    draws: int = DRAWS
    limit: float = LIMIT
    window_s: float = WINDOW_S

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise InvalidField("draws", self.draws, "it must be 1 or more")

    def priority(self, function: Function, gpus: Gpus) -> float:
        """Return expected gain over expected slowdown."""
        return expected_priority(function, gpus, self.slowdowns)

    def place(
        self, function: Function, gpus: Gpus, waiting: int, now_s: float, rng: Random
    ) -> FunctionPlacement | Refusal:
        """Return the GPU and the way to share with the most gain for what it costs.

        Few are looked at when many wait, and more before it has to wait itself.
        """
        warm = list(gpus.warm(function.workload, WARM_DRAWS))
        few = max(LEAST_DRAWS, self.draws // (1 + waiting // 4))
        is_last = few >= len(gpus)
        drawn = [*warm, *gpus.draw(function, few, rng)]
        found = self._best(function, drawn, gpus, now_s, tries=is_last)
        if found is None and not is_last:
            more = gpus.draw(function, self.draws, rng)
            found = self._best(function, more, gpus, now_s, tries=True)
        return found or NOWHERE

    def _best(
        self,
        function: Function,
        drawn: list[ColocatedGpu],
        gpus: Gpus,
        now_s: float,
        *,
        tries: bool,
    ) -> FunctionPlacement | None:
        """Return the cheapest that keeps all promises, else, if it ``tries``, an estimate.

        What training suffers is bounded in any case.  A function that is slower than estimated
        is measured and goes again; without a place it would have suffered more.
        """
        best, best_cost = None, 0.0
        doubtful: list[FunctionPlacement] = []
        for gpu in drawn:
            if not _fits(function, gpu):
                continue
            is_warm = gpus.is_warm(function.workload, gpu)
            for mode in (gpu.mode,) if gpu.functions else tuple(self.slowdowns.modes):
                slowdown = _slowdown(self.slowdowns, mode, gpu, function)
                site, cost = (
                    FunctionPlacement(gpu, mode, slowdown, is_warm),
                    _cost(slowdown, is_warm=is_warm),
                )
                if slowdown.p99 <= 1.0 and self._is_borne(
                    gpu, slowdown, function.stay_s, now_s
                ):
                    if best is None or cost < best_cost:
                        best, best_cost = site, cost
                elif tries and self._can_pay(gpu, slowdown, function.stay_s, now_s):
                    doubtful.append(site)
        return best or self._estimated(function, doubtful, now_s)

    def _estimated(
        self, function: Function, doubtful: list[FunctionPlacement], now_s: float
    ) -> FunctionPlacement | None:
        """Return the first place at which promises are kept, as far as is estimated."""
        for site in doubtful:
            estimate = _slowdown(self.slowdowns, site.mode, site.gpu, function, estimated=True)
            if estimate.p99 <= 1.0 and self._is_borne(
                site.gpu, estimate, function.stay_s, now_s
            ):
                return site
        return None

    def _is_borne(
        self, gpu: ColocatedGpu, slowdown: Slowdown, stay_s: float, now_s: float
    ) -> bool:
        """Tell whether training would lose no more than promised."""
        if gpu.trainer is None:
            return True
        # Who lost more than its due is left alone until it has caught up.
        tokens_s = gpu.settle(now_s, self.limit, self.window_s)
        return tokens_s >= max(0.0, _loss(slowdown) - self.limit) * stay_s

    def _can_pay(
        self, gpu: ColocatedGpu, slowdown: Slowdown, stay_s: float, now_s: float
    ) -> bool:
        """Tell whether training has saved up what is lost until a wrong estimate is noticed."""
        return self._is_borne(gpu, slowdown, min(stay_s, NOTICED_S), now_s)


def _cost(slowdown: Slowdown, *, is_warm: bool) -> float:
    own = slowdown.own - 1.0
    return LEAST_COST + (slowdown.training - 1.0) + own + (0.0 if is_warm else COLD_COST)


def _loss(slowdown: Slowdown) -> float:
    """Return the part of its time that training loses at a slowdown."""
    return 1.0 - 1.0 / slowdown.training


def _fits(function: Function, gpu: ColocatedGpu) -> bool:
    return gpu.memory_mib >= function.memory_mib and (
        not function.gpu_types or gpu.gpu_type in function.gpu_types
    )


def _spared(gpu: ColocatedGpu, idle: Mapping[str, GpuRef]) -> ColocatedGpu:
    """Return a GPU as it would be without its idle functions."""
    staying = [one for one in gpu.functions if one.id not in idle]
    freed_mib = sum(one.memory_mib for one in gpu.functions if one.id in idle)
    return replace(gpu, functions=staying, memory_mib=gpu.memory_mib + freed_mib)


def _slowdown(
    slowdowns: Slowdowns,
    mode: str,
    gpu: ColocatedGpu,
    function: Function,
    *,
    estimated: bool = False,
) -> Slowdown:
    return slowdowns.slowdown(
        mode, gpu.gpu_type, gpu.trainer, gpu.functions, function, estimated=estimated
    )


@dataclass
class Colocation:
    """Keeps the state of GPUs while functions come and go: events in, decisions out.

    An engine tells it what training runs where, asks where functions go, and reports what was
    measured.  It never stops a training job.
    """

    gpus: Gpus
    colocator: Colocator
    slowdowns: Slowdowns
    limit: float = LIMIT
    window_s: float = WINDOW_S
    rng: Random = field(default_factory=lambda: Random(0))

    def begin_training(
        self, gpu_id: GpuRef, workload: str, memory_mib: int, use: float, now_s: float
    ) -> list[Function]:
        """Note that a training job starts; return the functions that must make way for it.

        Those that take its memory, and all that would slow it down beyond its limit.
        """
        gpu = self.gpus.by_id[gpu_id]
        gpu.trainer, gpu.loss, gpu.tokens_s = workload, 0.0, 0.0
        gpu.settled_s = now_s
        gpu.forgive()
        gpu.memory_mib -= memory_mib
        gpu.use += use
        evicted = []
        while gpu.functions and (gpu.memory_mib < 0 or self._loss_now(gpu) > self.limit):
            evicted.append(gpu.functions[-1])
            self.leave(gpu.functions[-1], gpu_id, now_s)
        self._changed(gpu, now_s)
        return evicted

    def end_training(self, gpu_id: GpuRef, memory_mib: int, use: float, now_s: float) -> None:
        """Note that the training job of a GPU is gone."""
        gpu = self.gpus.by_id[gpu_id]
        gpu.trainer = None
        gpu.forgive()
        gpu.memory_mib += memory_mib
        gpu.use -= use
        self._changed(gpu, now_s)

    def place(
        self,
        function: Function,
        waiting: int,
        now_s: float,
        idle: Mapping[str, GpuRef] = NOBODY,
    ) -> FunctionPlacement | Refusal:
        """Return where a function goes, and hold its place.

        ``idle`` are functions that have nothing to do, and their GPUs: where there is no other
        place, those of one GPU leave.
        """
        site = self.colocator.place(function, self.gpus, waiting, now_s, self.rng)
        if isinstance(site, Refusal) and idle:
            site = self._instead(function, waiting, now_s, idle)
        if isinstance(site, Refusal):
            return site
        gpu = site.gpu
        gpu.settle(now_s, self.limit, self.window_s)
        gpu.mode, gpu.loss = site.mode, _loss(site.slowdown)
        gpu.functions.append(function)
        gpu.memory_mib -= function.memory_mib
        gpu.use += function.use
        self.gpus.note_warm(function.workload, gpu)
        self.gpus.place_in_index(gpu)
        return site

    def _instead(
        self, function: Function, waiting: int, now_s: float, idle: Mapping[str, GpuRef]
    ) -> FunctionPlacement | Refusal:
        """Return where a function could go if idle ones were gone, and let those leave."""
        known = list(dict.fromkeys(idle.values()))
        drawn = self.rng.sample(known, min(len(known), LEAST_DRAWS))
        spared = Gpus([_spared(self.gpus.by_id[gpu_id], idle) for gpu_id in drawn])
        site = self.colocator.place(function, spared, waiting, now_s, self.rng)
        if isinstance(site, Refusal):
            return site
        gpu = self.gpus.by_id[site.gpu.id]
        leaving = tuple(one for one in gpu.functions if one.id in idle)
        for one in leaving:
            self.leave(one, gpu.id, now_s)
        return replace(site, gpu=gpu, instead=leaving)

    def leave(self, function: Function, gpu_id: GpuRef, now_s: float) -> None:
        """Note that a function is gone from a GPU."""
        gpu = self.gpus.by_id[gpu_id]
        gpu.settle(now_s, self.limit, self.window_s)
        gpu.functions.remove(function)
        gpu.late.discard(function.id)
        gpu.memory_mib += function.memory_mib
        gpu.use -= function.use
        if all(other.workload != function.workload for other in gpu.functions):
            self.gpus.note_cold(function.workload, gpu)
        self._changed(gpu, now_s)

    def measured(
        self,
        gpu_id: GpuRef,
        training_slow_down: float | None,
        p99: Sequence[float | None],
        now_s: float,
    ) -> Function | None:
        """Take a measurement of a GPU in; return the function that must go, if one must.

        ``p99`` is that of each function there over its solo latency.  None stands for what was
        not measured, and neither breaks a promise nor keeps one.  The second violation in a
        row takes away the function that costs most, itself or training.
        """
        gpu = self.gpus.by_id[gpu_id]
        if not gpu.functions:
            return None
        tokens_s = gpu.settle(now_s, self.limit, self.window_s)
        measured = {
            function.id: slowed > function.p99_limit
            for slowed, function in zip(p99, gpu.functions, strict=True)
            if slowed is not None
        }
        if training_slow_down is not None:
            gpu.loss = 1.0 - 1.0 / max(1.0, training_slow_down)
            gpu.is_trainer_late = gpu.loss > self.limit and tokens_s <= 0
        gpu.late -= measured.keys()
        gpu.late |= {name for name, is_late in measured.items() if is_late}
        is_trainer_found_late = training_slow_down is not None and gpu.is_trainer_late
        if is_trainer_found_late or any(measured.values()):
            gpu.misses += 1
        elif not gpu.late and not gpu.is_trainer_late:
            gpu.misses = 0
        if gpu.misses < MISSES:
            return None
        worst = max(gpu.functions, key=lambda one: self._alone(gpu, one))
        self.leave(worst, gpu_id, now_s)
        gpu.misses = 0
        return worst

    def _alone(self, gpu: ColocatedGpu, function: Function) -> float:
        slowdown = self.slowdowns.slowdown(gpu.mode, gpu.gpu_type, gpu.trainer, (), function)
        return max(slowdown.training, slowdown.p99)

    def _loss_now(self, gpu: ColocatedGpu) -> float:
        if not gpu.functions or gpu.trainer is None:
            return 0.0
        *others, newest = gpu.functions
        return _loss(
            self.slowdowns.slowdown(gpu.mode, gpu.gpu_type, gpu.trainer, others, newest)
        )

    def _changed(self, gpu: ColocatedGpu, now_s: float) -> None:
        gpu.settle(now_s, self.limit, self.window_s)
        gpu.loss = self._loss_now(gpu)
        self.gpus.place_in_index(gpu)
