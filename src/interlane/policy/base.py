"""What a policy is: small protocols with one verb each, and the questions they may ask.

* ``Order`` says who goes first.
* ``Placer`` says where a job goes, or why it does not.
* ``Plans`` say which GPU types a job tries, in what order and for how long each.
* ``ClusterView`` is all that a placer may see; it answers questions and cannot be changed.

Policies read no clock and roll no global random generator: time and randomness are arguments.
A policy's fields are its settings; ``catalogue`` maps names to policies.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from math import inf
from random import Random
from typing import Protocol

from interlane.model import Demand, InvalidField, Job, MachineId, Placement, Refusal, Task
from interlane.policy.scores import Score

Key = tuple[float, float]
"""A value and a slope: urgency at time t is ``value + slope * t``; the smaller goes first.

Linear keys are enough for every order here, ageing ones included, and let the queue know
beforehand when two jobs will change places.
"""


class Order(Protocol):
    """Says who goes first.

    ``preempts`` allows a waiting job to take the place of running ones with a larger
    ``rank``.  To never loop, a job's rank must not fall while it waits, and must not rise
    in the moment it starts.
    """

    @property
    def preempts(self) -> bool:
        """Whether running jobs may be stopped for more urgent ones."""
        ...

    @property
    def keeps_accounts(self) -> bool:
        """Whether jobs are charged to accounts that take turns."""
        ...

    @property
    def counts_lost_work(self) -> bool:
        """Whether seconds that a job must run again count as run: service, not progress.

        An order whose rank rises with running needs it, or a job that loses its work would
        be as deserving as before and take its place back.
        """
        ...

    def key(self, job: Job, ran_s: float) -> Key:
        """Return how urgent a waiting job is, given the seconds it has run before.

        Asked once, when the job begins to wait.
        """
        ...

    def rank(self, job: Job, ran_s: float) -> float:
        """Return how little a job deserves its place; compared in preemption."""
        ...

    @property
    def rank_slope(self) -> float:
        """By how much a second of running changes a rank, steps apart; never above 0."""
        ...

    def rank_rises_after_s(self, job: Job, ran_s: float) -> float | None:
        """Return after how many more seconds of running the rank rises, if it ever does."""
        ...

    def account(self, job: Job) -> str:
        """Return whose share the job is charged to, where accounts are kept."""
        ...

    def share(self, account: str, gpu_milli_running: int) -> float:
        """Return how much of its due an account has; accounts with less go first."""
        ...


class GangSpread(IntEnum):
    """How a gang is spread over machines."""

    ONE_BY_ONE = 0
    SWEEP = 1
    SAMPLE = 2


class GpuChoice(IntEnum):
    """How an instance that uses one GPU picks it within its machine."""

    TIGHTEST = 0
    LOWEST = 1
    EMPTIEST = 2
    DRAWN = 3


class TypeRule(Enum):
    """Whose GPU types bind: those that a job names, only some of them, or none."""

    EXACT = "exact"
    V100_ONLY = "v100"
    ANY = "any"

    def binding(self, demand: Demand) -> frozenset[str]:
        """Return the GPU types the demand is held to; empty means any."""
        if self is TypeRule.ANY:
            return frozenset()
        if self is TypeRule.V100_ONLY and "V100" not in demand.gpu_types:
            return frozenset()
        return demand.gpu_types


@dataclass(frozen=True, slots=True)
class TypicalDemand:
    """One kind of instance that the workload consists of, and its share of instances."""

    demand: Demand
    weight: float


@dataclass(frozen=True, slots=True)
class BlendTerms:
    """What ``Score.BLEND`` adds up, each as a price; the machine with the lowest sum wins.

    A piece of a policy is one such object, and ``a + b`` has the prices of both.  Only their
    ratios matter.
    """

    tight: float = 0.0
    """For what the tightest GPU that fits would have left over, in GPUs."""
    fill: float = 0.0
    """For the machine's idle GPU share, over all it has: full machines first."""
    balance: float = 0.0
    """For the mean allocation rate of CPU, memory and GPU: the least allocated first."""
    match: float = 0.0
    """For GPUs that are newly left without the CPUs that GPU work needs."""
    contention: float = 0.0
    """For the slowdown by scarce CPUs that the instance would meet, 0.24 at most."""
    cores_per_gpu: float = 6.0
    """CPUs that one GPU's worth of work needs, by which ``match`` counts."""
    dear: tuple[tuple[str, float], ...] = ()
    """Further prices of machines with a GPU type, such as those to be kept free."""
    level: tuple[tuple[str, float], ...] = ()
    """Prices for the allocation rate of machines with a GPU type, instead of the first three
    terms: such machines are kept equally allocated."""

    def __add__(self, other: "BlendTerms") -> "BlendTerms":
        return BlendTerms(
            self.tight + other.tight,
            self.fill + other.fill,
            self.balance + other.balance,
            self.match + other.match,
            self.contention + other.contention,
            other.cores_per_gpu if other.match else self.cores_per_gpu,
            _summed(self.dear, other.dear),
            _summed(self.level, other.level),
        )


def _summed(
    one: tuple[tuple[str, float], ...], two: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    """Return the prices of both, by GPU type."""
    prices = dict(one)
    for gpu_type, price in two:
        prices[gpu_type] = prices.get(gpu_type, 0.0) + price
    return tuple(sorted(prices.items()))


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """How the view should choose: what the built-in placers are made of."""

    score: Score
    spread: GangSpread = GangSpread.ONE_BY_ONE
    gpu_choice: GpuChoice = GpuChoice.TIGHTEST
    choices: int = 1
    types: TypeRule = TypeRule.EXACT
    typical: tuple[TypicalDemand, ...] = ()
    terms: BlendTerms = BlendTerms()


@dataclass(frozen=True, slots=True)
class PlanStage:
    """A part of a plan: the machines that a waiting job is held to, and for how long.

    What a job names itself stays binding: a stage narrows it where both have types in
    common, and is without effect on it otherwise.
    """

    types: frozenset[str] = frozenset()
    """GPU types that tasks with GPUs may use; empty means any that is not spared."""
    timeout_s: float = inf
    """Seconds of waiting after which the next stage begins; 0 tries once."""
    spared: frozenset[str] = frozenset()
    """Types of machines that are not used, by tasks without GPUs neither."""
    lent: frozenset[str] = frozenset()
    """Types of machines that are only lent: whoever waits for them by right takes them back.

    Jobs in a stage that borrows come after all who do not, whatever the order says.
    """

    def __post_init__(self) -> None:
        if not self.timeout_s >= 0:
            raise InvalidField("timeout_s", self.timeout_s, "it must be 0 or more")

    def binding(
        self, named: frozenset[str], every: frozenset[str], *, bare: bool
    ) -> frozenset[str]:
        """Return the types that a task is held to; empty means any.

        ``named`` is what it is held to without a plan, ``every`` what the cluster has.
        """
        allowed = frozenset() if bare else self.types
        if not allowed and self.spared:
            allowed = every - self.spared
        return (named & allowed or named) if named and allowed else named or allowed


class Plans(Protocol):
    """Says which machines a job tries, in what order and how long it waits for each."""

    @property
    def lent(self) -> frozenset[str]:
        """Types of machines that any stage borrows."""
        ...

    def stages(self, job: Job) -> tuple[PlanStage, ...]:
        """Return the stages of a job's plan; asked once, when the job is submitted.

        The last one lasts as long as the job waits, whatever its time-out.
        """
        ...


@dataclass(frozen=True, slots=True)
class FreeMachine:
    """What one machine has left, for placers that are written in plain Python."""

    index: int
    id: MachineId
    gpu_type: str
    cpu_milli: int
    memory_mib: int
    gpu_milli: tuple[int, ...]
    gpu_memory_mib: tuple[int, ...]
    pooled: bool
    gpu_types: tuple[str, ...]
    """The type of each GPU; all the same, unless the machine's GPUs differ."""


class ClusterView(Protocol):
    """What a placer may ask.  It answers questions and hands out no lists to change."""

    def room(self, task: Task, types: TypeRule = TypeRule.EXACT) -> int:
        """Return how many instances of the task would fit now, over all machines."""
        ...

    def candidates(self, task: Task, types: TypeRule = TypeRule.EXACT) -> Iterator[int]:
        """Yield the machines that could take an instance now, in cluster order."""
        ...

    def free(self, machine: int) -> FreeMachine:
        """Return what one machine has left."""
        ...

    def choose(self, job: Job, rule: PlacementRule, seed: int = 0) -> Placement | Refusal:
        """Return the placement that a compiled rule chooses, or why there is none."""
        ...

    def why_not(self, job: Job, types: TypeRule = TypeRule.EXACT) -> Refusal:
        """Return why the job does not fit now."""
        ...


class Placer(Protocol):
    """Says where a job goes, given what is free.

    Must not change ``view``, must not read a clock, and must draw every random number from
    ``rng``: the same arguments give the same answer.
    """

    @property
    def types(self) -> TypeRule:
        """Whose GPU types bind."""
        ...

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Return where every instance goes, or why the job cannot be placed now."""
        ...
