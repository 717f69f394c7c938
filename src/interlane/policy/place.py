"""Where a job goes: the built-in placers.

Each is a name for a ``PlacementRule``; the view carries rules out with compiled code.  A placer
that no rule expresses is any object with ``place``: it asks ``view.candidates`` and
``view.free``.
"""

from dataclasses import dataclass
from random import Random

from interlane.model import InvalidField, Job, Placement, Refusal
from interlane.policy.base import (
    ClusterView,
    GangSpread,
    GpuChoice,
    PlacementRule,
    Plans,
    TypeRule,
    TypicalDemand,
)
from interlane.policy.scores import Score

_SEED_MAX = 2**53


@dataclass(frozen=True, slots=True)
class RulePlacer:
    """Place by one compiled rule."""

    name: str
    rule: PlacementRule
    about: str = ""
    plans: Plans | None = None
    """Which GPU types jobs try, in what order; the kernel follows them stage by stage."""

    @property
    def types(self) -> TypeRule:
        """Whose GPU types bind."""
        return self.rule.types

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Return where the rule puts every instance, or why it cannot."""
        draws = self.rule.spread is GangSpread.SAMPLE
        return view.choose(job, self.rule, rng.randrange(_SEED_MAX) if draws else 0)


def first_fit(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Take the first machine with room, in cluster order."""
    return RulePlacer("first-fit", PlacementRule(Score.FIRST, types=types))


def pack(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Fill the tightest GPU of the fullest machine first; empty machines stay empty."""
    return RulePlacer("pack", PlacementRule(Score.PACK, types=types))


def balance(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Take the machine with the lowest mean allocation rate of CPU, memory and GPU."""
    rule = PlacementRule(Score.BALANCE, gpu_choice=GpuChoice.EMPTIEST, types=types)
    return RulePlacer("balance", rule)


def random(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Take any machine with room, each as likely as the next, and any GPU on it."""
    rule = PlacementRule(Score.RANDOM, GangSpread.SAMPLE, GpuChoice.DRAWN, types=types)
    return RulePlacer("random", rule)


def dot_product(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Take the machine whose free amounts align least with the demand (FGD's baseline)."""
    return RulePlacer("dot-product", PlacementRule(Score.DOT_PRODUCT, types=types))


def gpu_clustering(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Keep tasks of one kind (shared, 1 GPU, 2 GPUs, ...) together on machines."""
    return RulePlacer("gpu-clustering", PlacementRule(Score.GPU_CLUSTERING, types=types))


def gpu_packing(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Prefer used GPUs, then free GPUs of used machines, then free machines."""
    return RulePlacer("gpu-packing", PlacementRule(Score.GPU_PACKING, types=types))


def best_fit(types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Leave the least CPU and GPU behind on the chosen machine."""
    return RulePlacer("best-fit", PlacementRule(Score.BEST_FIT, types=types))


def fgd(typical: tuple[TypicalDemand, ...], types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Let idle GPU share that typical demands cannot use grow the least (ATC'23)."""
    return RulePlacer(
        "fgd", PlacementRule(Score.FGD, types=types, typical=_needed("fgd", typical))
    )


def lookahead(
    typical: tuple[TypicalDemand, ...], types: TypeRule = TypeRule.EXACT
) -> RulePlacer:
    """Keep every hole fillable and every idle GPU supplied with CPU, machine after machine.

    FGD asks what the *next* typical demand could use.  A cluster that fills up sees many
    more, and this rule looks at all of them, in three terms of one score:

    * **Holes.**  What is left on a shared GPU waits for the best of many arrivals, and what
      that one leaves waits again (``scores.hole_losses``).  A hole of 530 thousandths is
      fine where demands of 470 and 530 are common and a loss where only 650 is; FGD calls
      either a fragment for most demands.  Solved once for all 1,000 sizes of a hole.
    * **CPU.**  Idle GPUs are out of reach when the machine's CPU does not last for them
      (``scores.out_of_reach``), so that demands with many cores per GPU go to machines with
      many cores per GPU, and those without GPUs to where cores are to spare.
    * **Tilt.**  Machines fill in a fixed order unless the first two terms object by more
      than the tilt.  Filled side by side, all machines would run short of the same thing at
      the same time; one after another, there is always an empty machine for a large demand
      and a wide choice of nearly equal ones for the first two terms.  The order strides by
      the golden ratio, so that each type of machine is spread evenly over it: unlike FGD's,
      the result does not hinge on how machines are named.
    """
    rule = PlacementRule(Score.LOOKAHEAD, types=types, typical=_needed("lookahead", typical))
    return RulePlacer("lookahead", rule)


def d_choices(choices: int = 2, types: TypeRule = TypeRule.EXACT) -> RulePlacer:
    """Draw a few machines with room at random and take the fullest of them."""
    if choices < 1:
        raise InvalidField("choices", choices, "it must be 1 or more")
    rule = PlacementRule(Score.PACK, GangSpread.SAMPLE, choices=choices, types=types)
    return RulePlacer("d-choices", rule)


def pai_pack() -> RulePlacer:
    """Fill machines in cluster order, V100 jobs on V100s only: the published packing rule."""
    return RulePlacer(
        "pai-pack", PlacementRule(Score.FIRST, GangSpread.SWEEP, types=TypeRule.V100_ONLY)
    )


def pai_balance() -> RulePlacer:
    """Fill the least used machines first, in percent: the published balancing rule."""
    rule = PlacementRule(Score.PAI_BALANCE, GangSpread.SWEEP, types=TypeRule.V100_ONLY)
    return RulePlacer("pai-balance", rule)


def _needed(name: str, typical: tuple[TypicalDemand, ...]) -> tuple[TypicalDemand, ...]:
    if not typical:
        raise InvalidField(f"typical demands of {name}", "()", "it needs at least one kind")
    return typical
