"""Reserving and packing, as PAI deploys it, and pieces for what its paper leaves open.

A *plan* is an ordered list of stages, each some GPU types with a time-out.  Tasks that will
use much of a GPU try the strong types first, all others the weak ones, so that strong GPUs
stay free for those who need them.  What a job names itself is binding, whatever its plan.

Pieces are prices (``base.Terms``) and can be added up; plans are ``Reserving`` (wait for the
weak types, then take any) or ``Lending`` (take any at once, but give strong ones back).
"""

from dataclasses import dataclass, field
from math import inf
from typing import Final

from interlane.model import InvalidField, Job
from interlane.model.gpu import NO_GPU
from interlane.policy.base import GpuChoice, Rule, Stage, Terms, TypeRule
from interlane.policy.performance import AsAsked, PerformanceModel
from interlane.policy.place import RulePlacer
from interlane.policy.scores import Score

STRONG: Final = "V100|V100M32"
WEAK: Final = "MISC|T4|P100"

PATIENCE_S: Final = 600.0
"""How long tasks wait for the types that they should use, unless said otherwise."""

HIGH: Final = 0.4
"""Share of a GPU from which on a task is worth a strong one."""


@dataclass(frozen=True)
class Reserving:
    """Plans by what a task will use: strong types first, or weak ones first."""

    strong: frozenset[str]
    weak: frozenset[str]
    patience_s: float = PATIENCE_S
    high: float = HIGH
    model: PerformanceModel = field(default_factory=AsAsked)

    @property
    def lends(self) -> bool:
        """Never."""
        return False

    def stages(self, job: Job) -> tuple[Stage, ...]:
        """Return the side that suits the job, then all."""
        first = self.strong if is_high(job, self) else self.weak
        return (Stage(first, self.patience_s, self.weak | {NO_GPU}), Stage())


@dataclass(frozen=True)
class Lending(Reserving):
    """Plans in which idle strong machines are lent to all others, and taken back when needed.

    Tasks with a right to strong types try them for a while, as under ``Reserving``; all
    others may use any machine from the beginning, the strong ones until somebody with a right
    to them waits.
    """

    @property
    def lends(self) -> bool:
        """Strong machines."""
        return True

    def stages(self, job: Job) -> tuple[Stage, ...]:
        """Return strong types first where that is right, else all of them, some lent."""
        if not is_high(job, self):
            return (Stage(lent=self.strong),)
        return (
            Stage(self.strong, self.patience_s, self.weak | {NO_GPU}),
            Stage(bare_types=self.weak | {NO_GPU}, timeout_s=inf),
        )


def is_high(job: Job, plans: Reserving) -> bool:
    """Return whether a job has a right to strong GPUs: it names them or will use much."""
    named = any(task.demand.gpu_types & plans.strong for task in job.request.tasks)
    return named or plans.model.gpu_use(job) >= plans.high


# -- pieces ---------------------------------------------------------------------------


def packing() -> Terms:
    """Fill the tightest GPU first; among equal ones, take the least allocated machine."""
    return Terms(tight=1_000.0, balance=1.0)


def filling() -> Terms:
    """Fill machines up, so that whole ones stay free for large instances."""
    return Terms(tight=1.0, fill=1.0)


def spreading(strong: frozenset[str]) -> Terms:
    """Keep strong machines equally allocated; the least allocated takes the next instance."""
    return Terms(balance=1.0, spread=strong)


def matching(cores_per_gpu: float = 6.0) -> Terms:
    """Send work that needs many CPUs to machines where it strands no GPU."""
    return Terms(match=2.0, cores_per_gpu=cores_per_gpu)


def avoiding_contention() -> Terms:
    """Keep away from machines on which scarce CPUs would slow work down."""
    return Terms(contention=2.0)


def keeping(strong: frozenset[str], price: float = 100.0) -> Terms:
    """Take strong machines only where no other has room."""
    return Terms(dear=tuple(sorted((name, price) for name in strong)))


# -- placers --------------------------------------------------------------------------


def reserve_and_pack(
    strong: str = STRONG,
    weak: str = WEAK,
    patience_s: float = PATIENCE_S,
    high: float = HIGH,
    types: TypeRule = TypeRule.EXACT,
    model: PerformanceModel | None = None,
) -> RulePlacer:
    """Reserve strong GPU types for tasks that will use much, and pack (PAI's deployed policy).

    Others try weak types first and any after ``patience_s``; within a stage the tightest GPU
    wins, then the least allocated machine.  ``strong`` and ``weak`` name types, as in
    ``V100|V100M32``; ``high`` is the share of a GPU from which on a task is worth a strong
    one.
    """
    plans = Reserving(
        *_sides(strong, weak, patience_s), patience_s, high, model or AsAsked()
    )
    return RulePlacer(
        "reserve-and-pack", Rule(Score.BLEND, types=types, terms=packing()), plans=plans
    )


def reserve_and_lend(
    strong: str = STRONG,
    weak: str = WEAK,
    patience_s: float = PATIENCE_S,
    high: float = HIGH,
    types: TypeRule = TypeRule.EXACT,
    model: PerformanceModel | None = None,
) -> RulePlacer:
    """Reserve strong GPU types, lend them while idle, spread load there and match CPUs.

    The pieces that PAI's paper leaves open, put together: weak machines are filled up, strong
    ones kept level and lent until somebody with a right to them waits, and work that needs
    many CPUs goes where it strands no GPU.
    """
    sides = _sides(strong, weak, patience_s)
    plans = Lending(*sides, patience_s, high, model or AsAsked())
    terms = filling() + spreading(sides[0]) + matching() + keeping(sides[0])
    rule = Rule(Score.BLEND, gpu_choice=GpuChoice.TIGHTEST, types=types, terms=terms)
    return RulePlacer("reserve-and-lend", rule, plans=plans)


def uncontended(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Pack, but keep away from machines where scarce CPUs would slow work down."""
    terms = filling() + matching() + avoiding_contention()
    return RulePlacer("uncontended", Rule(Score.BLEND, types=types, terms=terms))


def _sides(
    strong: str, weak: str, patience_s: float
) -> tuple[frozenset[str], frozenset[str]]:
    sides = frozenset(strong.split("|")) - {""}, frozenset(weak.split("|")) - {""}
    if not sides[0] or not sides[1] or sides[0] & sides[1]:
        rule = "it must name GPU types, as in V100|V100M32, none of them strong and weak"
        raise InvalidField("strong", strong, rule)
    if not patience_s >= 0:
        raise InvalidField("patience_s", patience_s, "it must be 0 or more")
    return sides
