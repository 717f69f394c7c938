"""Reserving and packing, as PAI deploys it, and pieces for what its paper leaves open.

A *plan* is an ordered list of stages, each some GPU types with a time-out.  Tasks that will
use much of a GPU try the strong types first, all others the weak ones, so that strong GPUs
stay free for those who need them.  What a job names itself is binding, whatever its plan.

Pieces are prices (``base.Terms``) and can be added up; plans are ``Reserving`` (wait for the
weak types, then take any) or ``Lending`` (take any at once, but give strong ones back).
"""

from dataclasses import dataclass, field
from typing import Final

from interlane.model import InvalidField, Job
from interlane.policy.base import BlendTerms, PlacementRule, PlanStage, TypeRule
from interlane.policy.performance import AsAsked, PerformanceModel
from interlane.policy.place import RulePlacer
from interlane.policy.scores import Score

STRONG: Final = "V100|V100M32"

PATIENCE_S: Final = 600.0
"""How long tasks wait for the types that they should use, unless said otherwise."""

WIDE: Final = "MISC"
"""Weak types with many GPUs a machine, where instances that need them all may go."""

KEPT: Final = 3_600.0
"""Price of a machine that is kept for others, above that of any place on a weak one."""

LEVEL: Final = 100_000.0
"""Price of all that a strong machine has: two hundredths of it cost as much as a weak one."""

LEND_TO: Final = 0.65
"""Allocation up to which strong machines are lent before any other is used."""

LEND_AFTER_S: Final = 0.0
"""How long others wait for other machines before they borrow strong ones."""

HIGH: Final = 0.4
"""Share of a GPU from which on a task is worth a strong one."""


class _NothingLent:
    """Plans under which no machine is lent."""

    @property
    def lent(self) -> frozenset[str]:
        """None."""
        return frozenset()


@dataclass(frozen=True)
class Reserving(_NothingLent):
    """Plans by what a task will use: strong types first, or all but the strong ones first."""

    strong: frozenset[str]
    patience_s: float = PATIENCE_S
    high: float = HIGH
    model: PerformanceModel = field(default_factory=AsAsked)

    def stages(self, job: Job) -> tuple[PlanStage, ...]:
        """Return the side that suits the job, then all."""
        return self._first(high=is_high(job, self)), PlanStage()

    def _first(self, *, high: bool) -> PlanStage:
        held_to: frozenset[str] = self.strong if high else frozenset()
        return PlanStage(held_to, self.patience_s, spared=self.strong)


@dataclass(frozen=True)
class Lending(Reserving):
    """Plans in which idle strong machines are lent to all others, and cancelled when needed.

    Tasks with a right to strong types try them for a while, as under ``Reserving``; all
    others wait for other machines for a while, and may then use any, the strong ones until
    somebody with a right to them waits.
    """

    lend_after_s: float = LEND_AFTER_S

    @property
    def lent(self) -> frozenset[str]:
        """Strong machines."""
        return self.strong

    def stages(self, job: Job) -> tuple[PlanStage, ...]:
        """Return strong types first where that is right, else all of them, some lent."""
        if is_high(job, self):
            return self._first(high=True), PlanStage()
        borrowing = PlanStage(lent=self.strong)
        if self.lend_after_s == 0:
            return (borrowing,)
        return PlanStage(timeout_s=self.lend_after_s, spared=self.strong), borrowing


@dataclass(frozen=True)
class ListedPlans(_NothingLent):
    """Plans as a list of types with time-outs, one for each kind of task.

    ``((frozenset({"MISC"}), 60.0), (frozenset({"T4"}), 60.0))`` tries MISC for a minute, then
    T4 for another, and then whatever there is.
    """

    strong_first: tuple[tuple[frozenset[str], float], ...]
    weak_first: tuple[tuple[frozenset[str], float], ...]
    high: float = HIGH
    model: PerformanceModel = field(default_factory=AsAsked)

    def stages(self, job: Job) -> tuple[PlanStage, ...]:
        """Return the list that suits the job, then all."""
        listed = self.strong_first if self.model.gpu_use(job) >= self.high else self.weak_first
        return *(PlanStage(types, timeout_s) for types, timeout_s in listed), PlanStage()


def is_high(job: Job, plans: Reserving) -> bool:
    """Return whether a job has a right to strong GPUs: it names them or will use much."""
    named = any(task.demand.gpu_types & plans.strong for task in job.request.tasks)
    return named or plans.model.gpu_use(job) >= plans.high


# -- pieces ---------------------------------------------------------------------------


def packing() -> BlendTerms:
    """Fill the tightest GPU first; among equal ones, take the least allocated machine."""
    return BlendTerms(tight=1_000.0, balance=1.0)


def filling() -> BlendTerms:
    """Fill the tightest GPU of the fullest machine, so that whole ones stay free."""
    return BlendTerms(tight=1_800.0, fill=180.0)


def spreading(strong: frozenset[str], up_to: float = 0.0) -> BlendTerms:
    """Keep strong machines equally allocated; the least allocated takes the next instance.

    Below an allocation of ``up_to`` they come before all others, so that what is lent fills
    the valleys between those who have a right to them.
    """
    return BlendTerms(level=_each(strong, LEVEL), dear=_each(strong, -LEVEL * up_to))


def matching(cores_per_gpu: float = 6.0) -> BlendTerms:
    """Send work that needs many CPUs to machines where it strands no GPU."""
    return BlendTerms(match=2.0, cores_per_gpu=cores_per_gpu)


def avoiding_contention() -> BlendTerms:
    """Keep away from machines on which scarce CPUs would slow work down."""
    return BlendTerms(contention=20_000.0)


def keeping(strong: frozenset[str], price: float = KEPT) -> BlendTerms:
    """Take machines of these types only where no other has room."""
    return BlendTerms(dear=_each(strong, price))


def _each(types: frozenset[str], price: float) -> tuple[tuple[str, float], ...]:
    return tuple((name, price) for name in sorted(types))


# -- placers --------------------------------------------------------------------------


def reserve_and_pack(
    strong: str = STRONG,
    patience_s: float = PATIENCE_S,
    high: float = HIGH,
    types: TypeRule = TypeRule.EXACT,
    model: PerformanceModel | None = None,
) -> RulePlacer:
    """Reserve strong GPU types for tasks that will use much, and pack (PAI's deployed policy).

    Others try all but the strong types first, and any after ``patience_s``; within a stage
    the tightest GPU wins, then the least allocated machine.  ``strong`` names types, as in
    ``V100|V100M32``; ``high`` is the share of a GPU from which on a task is worth one.
    """
    plans = Reserving(_named(strong), _positive(patience_s), high, model or AsAsked())
    return RulePlacer(
        "reserve-and-pack",
        PlacementRule(Score.BLEND, types=types, terms=packing()),
        plans=plans,
    )


def reserve_and_lend(
    strong: str = STRONG,
    wide: str = WIDE,
    patience_s: float = PATIENCE_S,
    high: float = HIGH,
    lend_after_s: float = LEND_AFTER_S,
    lend_to: float = LEND_TO,
    types: TypeRule = TypeRule.EXACT,
    model: PerformanceModel | None = None,
) -> RulePlacer:
    """Reserve strong GPU types, lend them while idle, spread load there and match CPUs.

    The pieces that PAI's paper leaves open, put together: weak machines are filled up, those
    with many GPUs (``wide``) last, so that whole ones stay free; strong ones are kept level
    and lent until somebody with a right to them waits, up to an allocation of ``lend_to``
    even before weak ones are used; and work that needs many CPUs goes where it strands no GPU.
    """
    patience_s, lend_after_s = _positive(patience_s), _positive(lend_after_s)
    plans = Lending(_named(strong), patience_s, high, model or AsAsked(), lend_after_s)
    level = spreading(plans.strong, _share("lend_to", lend_to))
    terms = filling() + level + matching() + keeping(_named(wide), 2 * KEPT)
    rule = PlacementRule(Score.BLEND, types=types, terms=terms)
    return RulePlacer("reserve-and-lend", rule, plans=plans)


def uncontended(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Pack, but keep away from machines where scarce CPUs would slow work down."""
    terms = filling() + matching() + avoiding_contention()
    return RulePlacer("uncontended", PlacementRule(Score.BLEND, types=types, terms=terms))


def _named(strong: str) -> frozenset[str]:
    types = frozenset(strong.split("|")) - {""}
    if not types:
        raise InvalidField("strong", strong, "it must name GPU types, as in V100|V100M32")
    return types


def _share(what: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise InvalidField(what, value, "it must be between 0 and 1")
    return value


def _positive(patience_s: float) -> float:
    if not patience_s >= 0:
        raise InvalidField("patience_s", patience_s, "it must be 0 or more")
    return patience_s
