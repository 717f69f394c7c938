"""Where a function goes: SMore's rule, and ours.

SMore (Algorithm 1): take the waiting function with the highest gain over slowdown, draw d
GPUs blindly, leave out those without room and those that would lose too much, take the least
degrading one, or the first when in a hurry; else the function waits again.

Ours decides on bounds instead of estimates, draws from GPUs that have room, counts what the
function itself suffers and a cold start, lets training lose a part of its time over a window
rather than at every moment, chooses how to share, and takes a function away again (never the
training job) when measurements broke the promise twice in a row.
"""

from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from interlane.model import InvalidField, Refusal, Tier
from interlane.model.function import Function
from interlane.policy.colocate.gpus import LIMIT, WINDOW_S, ColocatedGpu, Gpus
from interlane.policy.colocate.slowdown import Slowdown, Slowdowns

DRAWS: Final = 32
"""GPUs that are looked at for a function when nobody else waits."""
LEAST_DRAWS: Final = 8
WARM_DRAWS: Final = 4
NOTICED_S: Final = 180.0
"""Seconds in which that many have been measured."""
COLD_COST: Final = 0.2
"""What a cold start counts against a GPU, as a slowdown."""
LEAST_COST: Final = 0.01
FULL: Final = 1.0 + 1e-6
"""Share of a GPU that jobs and functions may keep busy together; a little for rounding."""


@dataclass(frozen=True, slots=True)
class FunctionPlacement:
    """Where a function goes, and how it shares the GPU there."""

    gpu: ColocatedGpu
    mode: str
    slowdown: Slowdown
    is_warm: bool = False


class Colocator(Protocol):
    """Says where a function goes, or why it waits."""

    @property
    def evicts(self) -> bool:
        """Whether idle functions leave for others, and broken promises send one away."""
        ...

    @property
    def explores(self) -> bool:
        """Whether pairs that nobody has measured are measured in idle moments."""
        ...

    @property
    def limit(self) -> float:
        """Part of its time that a training job may lose."""
        ...

    @property
    def window_s(self) -> float:
        """Seconds over which that is counted."""
        ...

    def bears(self, gpu: ColocatedGpu) -> bool:
        """Tell whether the training job of a GPU bears the functions that are there."""
        ...

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
    "No GPU that was looked at has the memory and the compute, and bears the slowdown.",
    "It is tried again; lower its memory or allow more slowdown.",
)


def expected_priority(function: Function, gpus: Gpus, slowdowns: Slowdowns) -> float:
    """Return the gain in use over the slowdown beside typical training jobs."""
    costs = [
        _slowdown(slowdowns, next(iter(slowdowns.modes)), gpu, function).training - 1.0
        for gpu in gpus.order[:: max(1, len(gpus) // 8)]
    ]
    return function.use / max(LEAST_COST, sum(costs) / max(1, len(costs)))


@dataclass
class Smore:
    """SMore's Algorithm 1, on point estimates."""

    slowdowns: Slowdowns
    choices: int = 8
    limit: float = LIMIT
    hurry_from: int = 64
    """Functions waiting from which the first acceptable GPU is taken."""
    mode: str = ""
    window_s: float = WINDOW_S
    evicts: bool = False
    explores: bool = False

    def __post_init__(self) -> None:
        if self.choices < 1:
            raise InvalidField("choices", self.choices, "it must be 1 or more")
        self.mode = self.mode or next(iter(self.slowdowns.modes))

    def bears(self, gpu: ColocatedGpu) -> bool:
        """Tell whether training is thought to lose no more than its limit."""
        return loss_on(gpu, self.slowdowns) <= self.limit

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
            if not fits(function, gpu):
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
    evicts: bool = True
    explores: bool = True

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise InvalidField("draws", self.draws, "it must be 1 or more")

    def bears(self, gpu: ColocatedGpu) -> bool:
        """Tell whether training is sure to lose no more than its limit."""
        return loss_on(gpu, self.slowdowns) <= self.limit

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
            if not fits(function, gpu):
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
        return tokens_s >= max(0.0, loss_at(slowdown) - self.limit) * stay_s

    def _can_pay(
        self, gpu: ColocatedGpu, slowdown: Slowdown, stay_s: float, now_s: float
    ) -> bool:
        """Tell whether training has saved up what is lost until a wrong estimate is noticed."""
        return self._is_borne(gpu, slowdown, min(stay_s, NOTICED_S), now_s)


@dataclass
class Apart:
    """Functions and jobs never share: a function goes where no job is, the fullest first."""

    slowdowns: Slowdowns
    limit: float = LIMIT
    window_s: float = WINDOW_S
    evicts: bool = True
    explores: bool = False

    def bears(self, gpu: ColocatedGpu) -> bool:
        """Tell whether nobody is there."""
        return gpu.trainer is None or not gpu.functions

    def priority(self, function: Function, gpus: Gpus) -> float:
        """Return what the function keeps busy."""
        return function.use

    def place(
        self, function: Function, gpus: Gpus, waiting: int, now_s: float, rng: Random
    ) -> FunctionPlacement | Refusal:
        """Return the GPU without a job that has least room to spare."""
        able = [gpu for gpu in gpus.order if gpu.trainer is None and fits(function, gpu)]
        if not able:
            return NOWHERE
        best = min(able, key=lambda gpu: gpu.memory_mib)
        mode = next(iter(self.slowdowns.modes))
        undisturbed = Slowdown(1.0, 1.0 / function.p99_limit, 1.0)
        return FunctionPlacement(best, mode, undisturbed, gpus.is_warm(function.workload, best))


def _cost(slowdown: Slowdown, *, is_warm: bool) -> float:
    own = slowdown.own - 1.0
    return LEAST_COST + (slowdown.training - 1.0) + own + (0.0 if is_warm else COLD_COST)


def loss_at(slowdown: Slowdown) -> float:
    """Return the part of its time that training loses at a slowdown."""
    return 1.0 - 1.0 / slowdown.training


def loss_on(gpu: ColocatedGpu, slowdowns: Slowdowns) -> float:
    """Return the part of its time that the training job of a GPU is thought to lose."""
    if not gpu.functions or gpu.trainer is None:
        return 0.0
    *others, newest = gpu.functions
    return loss_at(slowdowns.slowdown(gpu.mode, gpu.gpu_type, gpu.trainer, others, newest))


def fits(function: Function, gpu: ColocatedGpu) -> bool:
    """Tell whether a GPU has the memory and the compute to spare."""
    return (
        gpu.memory_mib >= function.memory_mib
        and gpu.use + function.use <= FULL
        and (not function.gpu_types or gpu.gpu_type in function.gpu_types)
    )


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
