"""Reserving and packing against load balancing, and what is composed of more pieces.

"MLaaS in the Wild" (NSDI 2022, figure 19) replays two months of PAI under its deployed policy
and under balancing alone.  The real submissions are not public in this form, so the jobs are
drawn with the published shares (``traces.synth_pai``), at a load at which strong GPUs are
contended.  Who will use much of a GPU is estimated from the runs of the days before.
"""

from collections.abc import Callable, MutableSequence, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import ceil
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import (
    Basis,
    Reproduction,
    Row,
    Setting,
    calibrated,
    claim,
    figure,
)
from interlane.reproduce.pai_figures import DRAWN_FROM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from interlane.policy.performance import FromHistory
    from interlane.sim.experiment import Experiment
    from interlane.traces.schema import Trace

MONTHS_DAYS: Final = 61.0
WEEK_DAYS: Final = 7.0
PART: Final = 0.25
"""Share of the machines and of the jobs that are played unless said otherwise."""

FULL: Final = "full"
SMALL: Final = "small"

HISTORY_DAYS: Final = 3.0
"""Days before the first job that is played, of which only the use of GPUs is known."""

LOAD: Final = 1.4
"""Jobs drawn, of the published number; fewer leave strong GPUs uncontended."""
PUBLISHED_LOAD: Final = 1.0
QUIET_DAYS: Final = 3.0
"""Days that are played at the published load, beside."""
CHOSEN: Final = "pai_reserve.LOAD and HIGH, chosen so that strong GPUs are contended"

CHECKPOINT_S: Final = 1_800.0
RESTART_S: Final = 60.0
"""What a borrower loses that is stopped: work since its last checkpoint, and a minute."""

STRONG: Final = ("V100", "V100M32")
HIGH: Final = 0.6
"""Share of a GPU from which on a task is worth a strong one."""

DAY_S: Final = 86_400.0
HOURS_PER_DAY: Final = 24

BALANCED, RESERVED, COMPOSED = "balance", "reserve-and-pack", "reserve-and-lend"
POLICIES: Final = (BALANCED, RESERVED, COMPOSED)

PUBLISHED_LESS: Final = {"all": 45, "V100": 68}
"""Percent by which reserving shortens the mean wait."""

PUBLISHED_NO_WAIT: Final = {
    (BALANCED, "all"): 93.0,
    (RESERVED, "all"): 91.5,
    (BALANCED, "V100"): 49.0,
    (RESERVED, "V100"): 58.0,
}
"""Percent of tasks that did not wait, read off figure 19."""


@dataclass(frozen=True, slots=True)
class ReserveFigures:
    """What one policy gave."""

    wait_s: float
    strong_wait_s: float
    no_wait: float
    """Percent of jobs."""
    strong_no_wait: float
    imbalance: float
    """Standard deviation of allocation among strong machines, the mean over hours."""
    completion_s: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class PlayedLoad:
    """What is played: so many days of jobs, for a share of the machines."""

    days: float
    seed: int
    scale: float
    load: float = LOAD

    @property
    def title(self) -> str:
        """Name it."""
        where = f"{self.days:g} days, {self.scale:g} of the machines, seed {self.seed}"
        return where if self.load == LOAD else f"at the published load, {where}"

    @property
    def jobs(self) -> int:
        """About how many jobs there are."""
        from interlane.traces.synth_pai.shares import JOBS_PER_DAY

        return round(JOBS_PER_DAY * self.load * self.scale * self.days)


def loads(setting: Setting) -> list[PlayedLoad]:
    """Return what to play: the months, weeks of other seeds, and days at the published load."""
    seed = setting.seed
    if setting.choice == FULL:
        return [PlayedLoad(MONTHS_DAYS, seed, 1.0)]
    weeks = [PlayedLoad(WEEK_DAYS, seed + more, PART) for more in (1, 2)]
    first = WEEK_DAYS if setting.choice == SMALL else MONTHS_DAYS
    return [
        PlayedLoad(first, seed, PART),
        *weeks,
        PlayedLoad(QUIET_DAYS, seed, PART, PUBLISHED_LOAD),
    ]


def _reserve(setting: Setting) -> list[Row]:
    runs = [(load, name) for load in loads(setting) for name in POLICIES]
    figures = dict(zip(runs, _play_all(setting, runs), strict=True))
    rows: list[Row] = []
    for number, load in enumerate(loads(setting)):
        found = {name: figures[load, name] for name in POLICIES}
        made = _rows(found) if load.load == LOAD else _uncontended(found)
        rows += [replace(row, what=f"{load.title}: {row.what}") for row in made]
        if number == 0:
            rows += [row for name, one in found.items() for row in _told(name, one)]
    return rows


def _play_all(setting: Setting, runs: Sequence[tuple[PlayedLoad, str]]) -> list[ReserveFigures]:
    """Play all runs, side by side where there are processes for it."""
    total = sum(load.jobs for load, _ in runs)
    if setting.processes <= 1:
        befores = accumulate((load.jobs for load, _ in runs), initial=0)
        return [
            _figures(*run, partial(_tell, setting, total, before))
            for run, before in zip(runs, befores, strict=False)
        ]
    context = get_context("spawn")
    ended = context.Array("q", len(runs), lock=False)
    with ProcessPoolExecutor(setting.processes, context, _share_count, (ended,)) as workers:
        futures = [workers.submit(_counted, number, *run) for number, run in enumerate(runs)]
        try:
            while wait(futures, timeout=1.0).not_done:
                setting.progress(sum(ended), total, "jobs")
        finally:
            workers.shutdown(wait=True, cancel_futures=True)
    return [future.result() for future in futures]


def _tell(setting: Setting, total: int, before: int, ended: int) -> None:
    setting.progress(before + ended, total, "jobs")


_ended: "MutableSequence[int]" = []
"""Jobs that have ended, by run; a worker process shares it with the one that asks."""


def _share_count(ended: "MutableSequence[int]") -> None:
    global _ended
    _ended = ended


def _counted(number: int, load: PlayedLoad, policy: str) -> ReserveFigures:
    return _figures(load, policy, partial(_ended.__setitem__, number))


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


def _experiment(load: PlayedLoad, policy: str) -> "Experiment":
    from interlane.policy import place, reserve
    from interlane.policy.catalogue import PlacerMaker, PlacerRecipe
    from interlane.policy.order import Fifo
    from interlane.sim.experiment import Choice, Experiment
    from interlane.sim.world import World
    from interlane.traces.synth_pai.jobs import draw_trace
    from interlane.traces.synth_pai.machines import part_of_cluster
    from interlane.traces.synth_pai.plan import Scope

    scope = Scope(load.days + HISTORY_DAYS, load.load * load.scale, load.seed)
    drawn = draw_trace(scope, load.scale)
    model = _history(drawn.trace, drawn.gpu_used)
    makers: dict[str, PlacerMaker] = {
        BALANCED: place.balance,
        RESERVED: partial(reserve.reserve_and_pack, high=HIGH, model=model),
        COMPOSED: partial(reserve.reserve_and_lend, high=HIGH, model=model),
    }
    return Experiment(
        _after_history(drawn.trace),
        part_of_cluster(load.scale),
        Choice("fifo", Fifo(), PlacerRecipe(policy, makers[policy])),
        world=World(restart_s=RESTART_S),
        seed=load.seed,
        checkpoint_s=CHECKPOINT_S,
    )


def _figures(load: PlayedLoad, policy: str, tell: "Callable[[int], None]") -> ReserveFigures:
    import numpy as np

    from interlane.metrics.level import allocation_spread
    from interlane.metrics.outcomes import outcomes
    from interlane.sim.experiment import engine_for, jobs_in, play

    experiment = _experiment(load, policy)
    jobs, true_s = jobs_in(experiment)
    log = play(engine_for(experiment, jobs, true_s), progress=tell)
    ends = outcomes(log)
    strong = np.array(
        [any(task.demand.gpu_types & set(STRONG) for task in job.request.tasks) for job in jobs]
    )
    wait_s, done = ends.wait_s, ends.done
    moments = ceil(load.days * HOURS_PER_DAY)
    return ReserveFigures(
        float(wait_s[done].mean()),
        float(wait_s[done & strong].mean()),
        100.0 * float((wait_s[done] == 0).mean()),
        100.0 * float((wait_s[done & strong] == 0).mean()),
        allocation_spread(log, STRONG, begin_s=0.0, end_s=load.days * DAY_S, moments=moments),
        float(ends.jct_s[done].mean()),
        int(ends.preemptions.sum()),
    )


def _rows(found: dict[str, ReserveFigures]) -> list[Row]:
    balanced, reserved, composed = found[BALANCED], found[RESERVED], found[COMPOSED]
    less = _less(reserved.wait_s, balanced.wait_s)
    strong_less = _less(reserved.strong_wait_s, balanced.strong_wait_s)
    better = min(balanced.wait_s, reserved.wait_s)
    strong_better = min(balanced.strong_wait_s, reserved.strong_wait_s)
    level = min(balanced.imbalance, reserved.imbalance)
    return [
        _shorter("all", less),
        _shorter("V100", strong_less),
        claim("reserving shortens the mean wait", less > 0, KEEPS),
        claim("reserving shortens the mean wait of V100 tasks", strong_less > 0, KEEPS),
        *_beats("mean wait, s", composed.wait_s, better),
        *_beats("V100 wait, s", composed.strong_wait_s, strong_better),
        *_beats("V100 imbalance", composed.imbalance, level, digits=4),
    ]


KEEPS: Final = "Plans of GPU types would not keep strong GPUs free for those who need them."


def _shorter(tasks: str, less: float) -> Row:
    published = PUBLISHED_LESS[tasks]
    what = f"mean wait down, {tasks} tasks, %"
    return calibrated(what, round(less, 1), published, less >= published, CHOSEN)


def _uncontended(found: dict[str, ReserveFigures]) -> list[Row]:
    """Return what reserving is worth where strong GPUs are seldom short: figures only."""
    balanced, reserved, composed = found[BALANCED], found[RESERVED], found[COMPOSED]
    rows = []
    for name, one in (("reserving", reserved), ("composed", composed)):
        less = _less(one.wait_s, balanced.wait_s)
        strong = _less(one.strong_wait_s, balanced.strong_wait_s)
        rows += [
            figure(f"{name}: mean wait down, all tasks, %", round(less, 1)),
            figure(f"{name}: mean wait down, V100 tasks, %", round(strong, 1)),
        ]
    return rows


def _told(name: str, one: ReserveFigures) -> list[Row]:
    """Return figures that are shown beside the paper's; nothing hinges on them."""
    return [
        figure(f"{name}: mean wait, s", round(one.wait_s, 1)),
        figure(f"{name}: mean wait, V100, s", round(one.strong_wait_s, 1)),
        figure(
            f"{name}: no wait, %", round(one.no_wait, 1), PUBLISHED_NO_WAIT.get((name, "all"))
        ),
        figure(
            f"{name}: no wait, V100, %",
            round(one.strong_no_wait, 1),
            PUBLISHED_NO_WAIT.get((name, "V100")),
        ),
        figure(f"{name}: imbalance of V100 machines", round(one.imbalance, 4)),
        figure(f"{name}: mean completion, s", round(one.completion_s, 1)),
        figure(f"{name}: preemptions", one.preemptions),
    ]


def _less(ours: float, theirs: float) -> float:
    return 100.0 * (1.0 - ours / theirs) if theirs else 0.0


def _beats(what: str, ours: float, bar: float, digits: int = 1) -> list[Row]:
    wrong = "Lending strong GPUs would cost who has a right to them."
    return [
        figure(
            f"{what}, composed", round(ours, digits), f"{round(bar, digits)}, better of both"
        ),
        claim(f"{what.split(',')[0]}, composed below the better of both", ours < bar, wrong),
    ]


RESERVE: Final = Reproduction(
    "pai-reserve",
    "Reserving strong GPUs and packing, against balancing: mean queueing 45 % shorter, 68 % "
    "for V100 tasks; and a composed policy that beats both. Two months for a quarter of the "
    "published machines, and a week of two other seeds; the variant full plays two months for "
    "all machines, small a week of three seeds.",
    "Plans of GPU types would not keep strong GPUs free for those who need them, or lending "
    "them would cost who has a right to them.",
    _reserve,
    needs_data=False,
    variants=(FULL, SMALL),
    basis=Basis.FITTED,
    published=(
        "interlane.reproduce.pai_reserve:PUBLISHED_LESS",
        "interlane.reproduce.pai_reserve:PUBLISHED_NO_WAIT",
    ),
    fitted=DRAWN_FROM,
    teaches="Reserving is worth what contention makes it worth: far less at the published load "
    "than where strong GPUs are short.",
)
