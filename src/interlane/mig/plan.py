"""What an answer looks like: GPUs, the instances on each, and how good the answer is."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from interlane.mig.layouts import Layout, SlicePlace


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance on a GPU, and what it serves there."""

    profile: str
    start: int
    service: str = ""
    """Empty while nothing runs in it."""
    batch: int = 1
    processes: int = 1
    throughput_per_s: float = 0.0
    latency_ms: float = 0.0

    @property
    def slot(self) -> SlicePlace:
        """Where it stands."""
        return SlicePlace(self.start, self.profile)


@dataclass(frozen=True, slots=True)
class Member:
    """One service on a GPU that several share without MIG, as a predictor sees it."""

    service: str
    throughput_per_s: float
    latency_ms: float


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """One GPU: cut into instances, or shared whole by members, or spare (neither)."""

    id: str
    model: str
    instances: tuple[Instance, ...] = ()
    """In the order of their starts."""
    members: tuple[Member, ...] = ()

    @property
    def layout(self) -> Layout:
        """The slots that its instances take."""
        return tuple(sorted(instance.slot for instance in self.instances))

    @property
    def is_spare(self) -> bool:
        """Whether it stands by for another one's failure."""
        return not self.instances and not self.members

    def throughputs(self) -> dict[str, float]:
        """Return what it gives each service."""
        given: dict[str, float] = {}
        serving: tuple[Instance | Member, ...] = (*self.instances, *self.members)
        for one in serving:
            if one.service:
                given[one.service] = given.get(one.service, 0.0) + one.throughput_per_s
        return given


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Every GPU with what it holds; also what is there now, before a transition."""

    gpus: tuple[GpuPlan, ...] = ()

    @property
    def instances(self) -> Iterator[tuple[GpuPlan, Instance]]:
        """Every instance with its GPU."""
        return ((gpu, instance) for gpu in self.gpus for instance in gpu.instances)

    def throughputs(self) -> dict[str, float]:
        """Return what each service gets of all GPUs."""
        given: dict[str, float] = {}
        for gpu in self.gpus:
            for service, amount in gpu.throughputs().items():
                given[service] = given.get(service, 0.0) + amount
        return given

    def counts(self) -> dict[str, int]:
        """Return how many GPUs of each model there are."""
        counted: dict[str, int] = {}
        for gpu in self.gpus:
            counted[gpu.model] = counted.get(gpu.model, 0) + 1
        return counted

    def cost(self, prices: Mapping[str, float]) -> float:
        """Return what its GPUs cost together."""
        return sum(prices[model] * count for model, count in self.counts().items())


class StopReason(StrEnum):
    """Why an optimiser stopped."""

    OPTIMAL = "optimal"
    """Nothing better exists: the bound meets the cost."""
    FINISHED = "finished"
    """A heuristic came to its end; better plans may exist."""
    TIME = "time limit"
    ROUNDS = "round limit"
    """It has tried as often as it was told to."""
    PATTERNS = "pattern limit"
    """The proof would need more patterns than are worth trying."""


TOLERANCE = 1e-6
"""Costs that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class SolvedPlan:
    """A plan and how good it is."""

    optimiser: str
    plan: PartitionPlan
    cost: float
    """GPUs times their prices; the number of GPUs where every price is 1."""
    lower_bound: float
    """Proven: no plan costs less."""
    stopped: StopReason
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """What a better plan could save at most."""
        return max(0.0, self.cost - self.lower_bound)

    @property
    def is_optimal(self) -> bool:
        """Whether the plan is proven to be the best."""
        return self.gap < TOLERANCE

    @property
    def told(self) -> str:
        """How many GPUs of each model, at what cost, and whether fewer would do."""
        counts = ", ".join(f"{count} {model}" for model, count in self.plan.counts().items())
        cost = "" if self.cost == len(self.plan.gpus) else f", cost {self.cost:g}"
        return f"{counts}{cost}, {self._proof}"

    @property
    def _proof(self) -> str:
        if self.is_optimal:
            return "proven optimal"
        return (
            f"at most {self.gap:g} ({self.gap / self.cost:.1%}) above the optimum: nothing "
            f"below {self.lower_bound:g} exists; stopped: {self.stopped.value}"
        )


def _no_clock() -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try."""

    time_limit_s: float | None = None
    """Seconds after which the best plan so far is returned."""
    seed: int = 0
    clock: Callable[[], float] = field(default=_no_clock)
    """Seconds since some moment; one that stands still never runs out."""
