"""Keeping away from scarce CPUs: where that is right, and what it costs where it is not.

"MLaaS in the Wild" (NSDI 2022, section 6.2) measures how a model slows down beside busy cores
and leaves placement that heeds it open.  In a world that stretches jobs by that very curve, a
placer that reads it must win: those rows are calibrated.  What is checked is a world that the
placer knows nothing of: real pods, slowed by what shares their GPU as pairs were measured.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from zlib import crc32

from interlane.reproduce.base import (
    Basis,
    Excuse,
    Reproduction,
    Row,
    Setting,
    calibrated,
    checked,
    figure,
)
from interlane.reproduce.pai_figures import DRAWN_FROM

if TYPE_CHECKING:
    from interlane.model import Job
    from interlane.reproduce.smore_utilisation import MeasuredCrowd
    from interlane.sim.experiment import Experiment
    from interlane.sim.world import Neighbourhood

DAYS: Final = 2.0
PART: Final = 0.1
"""Share of the published machines and jobs."""

SEEDS: Final = 2
PACKED, UNCONTENDED = "pack", "uncontended"
SHARED: Final = "policy.contention.STEPS_PER_S, which placer and world share"

GPUS: Final = 56
"""On which openb's real pods are played: shared, but hardly queueing."""
WORST: Final = 1.03
"""What heeding CPUs may cost where they do not matter: mean completion over packing's."""
KNOWN: Final = Excuse(
    "a known weakness: spreading over CPUs breaks GPUs up, so that pods with several wait",
    WORST,
    1.6,
)


@dataclass(frozen=True, slots=True)
class ContentionFigures:
    """What one placer gave."""

    completion_s: float
    wait_s: float
    slowdown: float
    """Mean percent by which jobs ran longer than alone."""


def _contention(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    for seed in range(setting.seed, setting.seed + SEEDS):
        found = {
            name: _figures(_measured_world(setting, name, seed))
            for name in (PACKED, UNCONTENDED)
        }
        rows += measured_rows(seed, found[PACKED], found[UNCONTENDED])
    for number, seed in enumerate(range(setting.seed, setting.seed + SEEDS)):
        found = {}
        for name in (PACKED, UNCONTENDED):
            tell = partial(_tell, setting, 2 * number + (name == UNCONTENDED))
            found[name] = _figures(_curve_world(name, seed), tell)
        rows += rows_of(seed, found[PACKED], found[UNCONTENDED])
    return rows


def _tell(setting: Setting, run: int, ended: int) -> None:
    from interlane.traces.synth_pai.plan import Scope

    jobs = Scope(DAYS, PART).jobs
    setting.progress(run * jobs + ended, 2 * SEEDS * jobs, "jobs")


# -- worlds ---------------------------------------------------------------------------


@dataclass(frozen=True)
class PairWorld:
    """Stretch by the jobs on the same GPU as Lucid measured it on one.

    Traces do not say what pods run: each is one of the measured workloads, by its name.
    """

    slow_down: tuple[tuple[float, ...], ...]
    """Less 1, by victim and neighbour."""
    crowd: "MeasuredCrowd"
    seed: int

    def factor(self, job: "Job", here: "Neighbourhood") -> float:
        """Return the stretch, of the sum of pairs and what more than two measured."""
        row = self.slow_down[self._workload(job)]
        excess = [row[self._workload(one)] for one in here.sharers]
        if not excess:
            return 1.0
        return self.crowd.total(sum(excess), max(excess), len(excess))

    def _workload(self, job: "Job") -> int:
        return crc32(f"{self.seed}/{job.id}".encode()) % len(self.slow_down)


def _measured_world(setting: Setting, name: str, seed: int) -> "Experiment":
    import numpy as np

    from interlane import wiring
    from interlane.model import InvalidInput
    from interlane.policy.catalogue import placer_recipe
    from interlane.policy.order import Fifo
    from interlane.reproduce.pai import data_file
    from interlane.reproduce.real_sharing import PODS, cluster_of, on_any_type
    from interlane.reproduce.smore_utilisation import MeasuredCrowd, measured, true_slowdown
    from interlane.sim.experiment import Choice, Experiment
    from interlane.sim.world import World

    if setting.data is None:
        raise InvalidInput("This needs measured co-runs; name their directory with --data.")
    slower = np.maximum(true_slowdown(measured(setting.data)) - 1.0, 0.0)
    pairs = PairWorld(tuple(map(tuple, slower.tolist())), MeasuredCrowd.of(setting.data), seed)
    return Experiment(
        on_any_type(wiring.any_trace(data_file(setting, PODS))),
        cluster_of(GPUS),
        Choice("fifo", Fifo(), placer_recipe(name)),
        world=World(slow_downs=(pairs,)),
        seed=seed,
    )


def _curve_world(name: str, seed: int) -> "Experiment":
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


def _figures(
    experiment: "Experiment", tell: "partial[None] | None" = None
) -> ContentionFigures:
    import numpy as np

    from interlane.metrics.outcomes import outcomes
    from interlane.sim.experiment import engine_for, jobs_in, play

    jobs, true_s = jobs_in(experiment)
    ends = outcomes(play(engine_for(experiment, jobs, true_s), progress=tell))
    done = ends.done
    completion_s, wait_s, alone_s = ends.jct_s[done], ends.wait_s[done], np.array(true_s)[done]
    slowdown = (completion_s - wait_s) / alone_s - 1.0
    return ContentionFigures(
        float(completion_s.mean()), float(wait_s.mean()), 100.0 * float(slowdown.mean())
    )


# -- rows -----------------------------------------------------------------------------


def _beside(packed_s: float) -> str:
    return f"{packed_s:,.0f}, packing"


def measured_rows(
    seed: int, packed: ContentionFigures, uncontended: ContentionFigures
) -> list[Row]:
    """Return what heeding CPUs costs where slowdown comes from shared GPUs."""
    where = f"measured world, seed {seed}"
    ratio = uncontended.completion_s / packed.completion_s
    return [
        figure(
            f"{where}: slowdown, mean %",
            round(uncontended.slowdown, 2),
            f"{packed.slowdown:.2f}, packing",
        ),
        figure(f"{where}: mean wait, s", round(uncontended.wait_s), _beside(packed.wait_s)),
        checked(
            f"{where}: slowdown under packing, mean %",
            round(packed.slowdown, 2),
            "above 0, below 50",
            0.0 < packed.slowdown < 50.0,
            "Jobs that share a GPU would not be slowed as pairs were measured.",
        ),
        checked(
            f"{where}: mean completion over packing's",
            round(ratio, 4),
            f"at most {WORST}",
            ratio <= WORST,
            "Avoiding contention would cost much where it is not there to be avoided.",
            KNOWN,
        ),
    ]


def rows_of(seed: int, packed: ContentionFigures, uncontended: ContentionFigures) -> list[Row]:
    """Return what the world gives that the placer knows beforehand."""
    where = f"the placer's own curve, seed {seed}"
    return [
        calibrated(
            f"{where}: slowdown, mean % (packing beside)",
            round(uncontended.slowdown, 1),
            f"< {packed.slowdown:.1f}",
            uncontended.slowdown < packed.slowdown,
            SHARED,
        ),
        calibrated(
            f"{where}: mean completion, s",
            round(uncontended.completion_s, 1),
            f"< {packed.completion_s:.1f}",
            uncontended.completion_s < packed.completion_s,
            SHARED,
        ),
        figure(f"{where}: mean wait, s", round(uncontended.wait_s, 1), _beside(packed.wait_s)),
    ]


CONTENTION: Final = Reproduction(
    "pai-contention",
    "A placer that keeps away from scarce CPUs ends jobs sooner than packing where they slow "
    "work down as it believes; and what it costs where slowdown comes from shared GPUs, as "
    "measured (Lucid's pairs), on openb's real pods.",
    "Avoiding contention would cost more than contention does.",
    _contention,
    basis=Basis.MEASURED,
    fitted=DRAWN_FROM,
    teaches="The gain in the paper's world is by construction: where slowdown comes from "
    "shared GPUs instead, keeping away from CPUs ends real jobs a third later than packing.",
)
