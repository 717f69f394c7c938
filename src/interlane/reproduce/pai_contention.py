"""Keeping away from scarce CPUs, in a world where they slow work down as was published.

"MLaaS in the Wild" (NSDI 2022, section 6.2) measures how a model slows down beside busy cores
and leaves placement that heeds it open.  Jobs are drawn with the published shares for a tenth
of the published machines; the world stretches them by that curve (``policy.contention``).
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Basis, Reproduction, Row, Setting, checked, figure

if TYPE_CHECKING:
    from interlane.sim.experiment import Experiment

DAYS: Final = 2.0
PART: Final = 0.1
"""Share of the published machines and jobs."""

SEEDS: Final = 2
PACKED, UNCONTENDED = "pack", "uncontended"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one placer gave."""

    completion_s: float
    wait_s: float
    stretch: float
    """Mean percent by which jobs ran longer than alone."""


def _contention(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    for number, seed in enumerate(range(setting.seed, setting.seed + SEEDS)):
        found = {}
        for name in (PACKED, UNCONTENDED):
            tell = partial(_tell, setting, 2 * number + (name == UNCONTENDED))
            found[name] = _figures(_experiment(name, seed), tell)
        rows += rows_of(seed, found[PACKED], found[UNCONTENDED])
    return rows


def _tell(setting: Setting, run: int, ended: int) -> None:
    from interlane.traces.synth_pai.plan import Scope

    jobs = Scope(DAYS, PART).jobs
    setting.progress(run * jobs + ended, 2 * SEEDS * jobs, "jobs")


def _experiment(name: str, seed: int) -> "Experiment":
    from interlane.policy.catalogue import placer_recipe
    from interlane.policy.order import Fifo
    from interlane.sim.experiment import Choice, Experiment
    from interlane.sim.world import CpuContention, World
    from interlane.traces.synth_pai.jobs import draw_trace
    from interlane.traces.synth_pai.machines import part_of_cluster
    from interlane.traces.synth_pai.plan import Scope

    return Experiment(
        draw_trace(Scope(DAYS, PART, seed), PART).trace,
        part_of_cluster(PART),
        Choice("fifo", Fifo(), placer_recipe(name)),
        world=World(slow_downs=(CpuContention(),)),
        seed=seed,
    )


def _figures(experiment: "Experiment", tell: "partial[None]") -> Figures:
    import numpy as np

    from interlane.metrics.outcomes import outcomes
    from interlane.sim.experiment import engine_for, jobs_in, play

    jobs, true_s = jobs_in(experiment)
    ends = outcomes(play(engine_for(experiment, jobs, true_s), progress=tell))
    done = ends.done
    completion_s, wait_s, alone_s = ends.jct_s[done], ends.wait_s[done], np.array(true_s)[done]
    stretch = (completion_s - wait_s) / alone_s - 1.0
    return Figures(
        float(completion_s.mean()), float(wait_s.mean()), 100.0 * float(stretch.mean())
    )


def rows_of(seed: int, packed: Figures, uncontended: Figures) -> list[Row]:
    """Return what must hold, and the waits beside it."""
    return [
        checked(
            f"seed {seed}: slow-down, mean % (packing beside)",
            round(uncontended.stretch, 1),
            f"< {packed.stretch:.1f}",
            uncontended.stretch < packed.stretch,
        ),
        checked(
            f"seed {seed}: mean completion, s",
            round(uncontended.completion_s, 1),
            f"< {packed.completion_s:.1f}",
            uncontended.completion_s < packed.completion_s,
        ),
        figure(
            f"seed {seed}: mean wait, s", round(uncontended.wait_s, 1), round(packed.wait_s, 1)
        ),
    ]


CONTENTION: Final = Reproduction(
    "pai-contention",
    "Where scarce CPUs slow work down by the published curve, a placer that keeps away from "
    "them ends jobs sooner than packing (beside: packing).",
    "Avoiding contention would cost more than contention does.",
    _contention,
    needs_data=False,
    basis=Basis.DRAWN,
)
