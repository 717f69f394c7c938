"""Reserving and packing against load balancing, and what is composed of more pieces.

"MLaaS in the Wild" (NSDI 2022, figure 19) replays two months of PAI under its deployed policy
and under balancing alone.  The real submissions are not public in this form, so the jobs are
drawn with the published shares (``traces.synth_pai``), at a load at which strong GPUs are
contended.  Who will use much of a GPU is guessed from the runs of the days before.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Reproduction, Row, Setting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from interlane.policy.performance import FromHistory
    from interlane.sim.experiment import Experiment
    from interlane.traces.schema import Trace

FULL_DAYS: Final = 61.0
SMALL: Final = "small"
SMALL_DAYS: Final = 3.0
HISTORY_DAYS: Final = 3.0
"""Days before the first job that is played, of which only the use of GPUs is known."""

LOAD: Final = 1.4
"""Jobs drawn, of the published number; fewer leave strong GPUs uncontended."""

STRONG: Final = ("V100", "V100M32")
HIGH: Final = 0.6
"""Share of a GPU from which on a task is worth a strong one."""

DAY_S: Final = 86_400.0

BALANCED, RESERVED, COMPOSED = "balance", "reserve-and-pack", "reserve-and-lend"

PUBLISHED_NO_WAIT: Final = {
    (BALANCED, "all"): 93.0,
    (RESERVED, "all"): 91.5,
    (BALANCED, "V100"): 49.0,
    (RESERVED, "V100"): 58.0,
}
"""Percent of tasks that did not wait, read off figure 19."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one policy gave."""

    wait_s: float
    strong_wait_s: float
    no_wait: float
    """Percent of jobs."""
    strong_no_wait: float
    imbalance: float
    """Standard deviation of allocation among strong machines."""
    preemptions: int


def _reserve(setting: Setting) -> list[Row]:
    from interlane.traces.synth_pai.jobs import draw_trace
    from interlane.traces.synth_pai.plan import Scope

    days = SMALL_DAYS if setting.choice == SMALL else FULL_DAYS
    drawn = draw_trace(Scope(days + HISTORY_DAYS, LOAD, setting.seed))
    model = _history(drawn.trace, drawn.gpu_used)
    trace = _after_history(drawn.trace)
    found = {}
    for number, name in enumerate((BALANCED, RESERVED, COMPOSED)):
        tell = partial(_tell, setting, number, trace.jobs)
        found[name] = _figures(_experiment(trace, name, model, setting.seed), days, tell)
    return _rows(found)


def _tell(setting: Setting, number: int, jobs: int, ended: int) -> None:
    setting.progress(number * jobs + ended, 3 * jobs, "jobs")


def _history(trace: "Trace", gpu_used: "NDArray[np.float64]") -> "FromHistory":
    """Return the model of what jobs use, from those before the first that is played."""
    import polars as pl

    from interlane.policy.performance import FromHistory, PastRun

    first = trace.frame.filter(pl.col("job_id").rle_id().is_first_distinct())
    known = (
        first.with_columns(pl.Series("used", gpu_used))
        .filter((pl.col("submit_s") < HISTORY_DAYS * DAY_S) & (pl.col("gpus") > 0))
        .select("group", "family", "instances", pl.col("gpu_milli") / 1000, "used")
    )
    return FromHistory.fit(PastRun(*row) for row in known.iter_rows())


def _after_history(trace: "Trace") -> "Trace":
    import polars as pl

    begin_s = HISTORY_DAYS * DAY_S
    later = trace.frame.filter(pl.col("submit_s") >= begin_s)
    return replace(trace, frame=later.with_columns(pl.col("submit_s") - begin_s))


def _experiment(trace: "Trace", name: str, model: "FromHistory", seed: int) -> "Experiment":
    from interlane import wiring
    from interlane.policy import place, reserve
    from interlane.policy.catalogue import PlacerMaker, PlacerRecipe
    from interlane.policy.order import Fifo
    from interlane.sim.experiment import Choice, Experiment

    makers: dict[str, PlacerMaker] = {
        BALANCED: place.balance,
        RESERVED: partial(reserve.reserve_and_pack, high=HIGH, model=model),
        COMPOSED: partial(reserve.reserve_and_lend, high=HIGH, model=model),
    }
    choice = Choice("fifo", Fifo(), PlacerRecipe(name, makers[name]))
    return Experiment(trace, wiring.cluster_of("pai2020"), choice, seed=seed)


def _figures(experiment: "Experiment", days: float, tell: "partial[None]") -> Figures:
    import numpy as np

    from interlane.metrics.level import allocation_spread
    from interlane.metrics.outcomes import outcomes
    from interlane.sim.experiment import engine_for, jobs_in, play

    jobs, true_s = jobs_in(experiment)
    log = play(engine_for(experiment, jobs, true_s), progress=tell)
    ends = outcomes(log)
    strong = np.array(
        [any(task.demand.gpu_types & set(STRONG) for task in job.request.tasks) for job in jobs]
    )
    wait_s, done = ends.wait_s, ends.done
    return Figures(
        float(wait_s[done].mean()),
        float(wait_s[done & strong].mean()),
        100.0 * float((wait_s[done] == 0).mean()),
        100.0 * float((wait_s[done & strong] == 0).mean()),
        allocation_spread(log, STRONG, begin_s=0.0, end_s=days * DAY_S),
        int(ends.preemptions.sum()),
    )


def _rows(found: dict[str, Figures]) -> list[Row]:
    balanced, reserved, composed = found[BALANCED], found[RESERVED], found[COMPOSED]
    less = _less(reserved.wait_s, balanced.wait_s)
    strong_less = _less(reserved.strong_wait_s, balanced.strong_wait_s)
    rows = [
        Row("mean wait down, all tasks, %", round(less, 1), 45, less >= 45),
        Row("mean wait down, V100 tasks, %", round(strong_less, 1), 68, strong_less >= 68),
    ]
    for name, one in found.items():
        rows += _told(name, one)
    better = min(balanced.wait_s, reserved.wait_s)
    strong_better = min(balanced.strong_wait_s, reserved.strong_wait_s)
    level = min(balanced.imbalance, reserved.imbalance)
    return [
        *rows,
        _beats("mean wait, composed below the better of both, s", composed.wait_s, better),
        _beats("V100 wait, composed below, s", composed.strong_wait_s, strong_better),
        _beats("V100 imbalance, composed below", composed.imbalance, level, digits=4),
    ]


def _told(name: str, one: Figures) -> list[Row]:
    """Return figures that are shown beside the paper's; nothing hinges on them."""
    return [
        Row(f"{name}: mean wait, s", round(one.wait_s, 1), None, holds=True),
        Row(f"{name}: mean wait, V100, s", round(one.strong_wait_s, 1), None, holds=True),
        Row(
            f"{name}: no wait, %",
            round(one.no_wait, 1),
            PUBLISHED_NO_WAIT.get((name, "all")),
            holds=True,
        ),
        Row(
            f"{name}: no wait, V100, %",
            round(one.strong_no_wait, 1),
            PUBLISHED_NO_WAIT.get((name, "V100")),
            holds=True,
        ),
        Row(f"{name}: imbalance of V100 machines", round(one.imbalance, 4), None, holds=True),
        Row(f"{name}: preemptions", one.preemptions, None, holds=True),
    ]


def _less(ours: float, theirs: float) -> float:
    return 100.0 * (1.0 - ours / theirs) if theirs else 0.0


def _beats(what: str, ours: float, bar: float, digits: int = 1) -> Row:
    return Row(what, round(ours, digits), f"< {round(bar, digits)}", ours < bar)


RESERVE: Final = Reproduction(
    "pai-reserve",
    "Reserving strong GPUs and packing, against balancing, on the published machine table: "
    "mean queueing 45 % shorter, 68 % for V100 tasks; and a composed policy beside both. The "
    "small variant plays three days instead of two months.",
    "Plans of GPU types would not keep strong GPUs free for those who need them, or lending "
    "them would cost who has a right to them.",
    _reserve,
    needs_data=False,
    variants=(SMALL,),
)
