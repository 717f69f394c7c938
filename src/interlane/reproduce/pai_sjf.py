"""Shortest job first by predictions, at the paper's load ("MLaaS in the Wild", figure 13)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import (
    Basis,
    Reproduction,
    Row,
    Setting,
    calibrated,
    checked,
    claim,
    figure,
)
from interlane.reproduce.pai import STAND_IN, data_file

if TYPE_CHECKING:
    from interlane.sim.experiment import Experiment
    from interlane.traces.schema import Trace

RATE: Final = 68
"""Jobs a minute at which FIFO takes as long at 6,500 GPUs as the paper's (24,000 s)."""

FITTED_GPUS: Final = 6500
_FITTED: Final = "RATE, the jobs a minute that give the paper's FIFO"

LADDER: Final = ("oracle", "group+user+gpu", "group+user", "user", "fifo")
"""Predictions, the best first."""

PAPER_MEAN_S: Final[Mapping[int, Mapping[str, int]]] = {
    6500: dict(zip(LADDER, (5530, 5950, 6650, 8950, 24000), strict=True)),
    4500: dict(zip(LADDER, (6950, 7900, 9500, 12750, 32050), strict=True)),
    3000: dict(zip(LADDER, (9500, 11600, 13200, 18150, 43100), strict=True)),
}
"""GPUs -> prediction -> mean completion time, read off figure 13 (about 200 s either way)."""

ESTIMATES: Final = dict(
    zip(LADDER, ("duration", "group_gpu_dur", "group_dur", "user_dur", None), strict=True)
)
"""Prediction -> the stand-in's column."""

LEAST, MOST = 63.0, 77.0
"""Percent by which predictions lower FIFO's mean completion time in the paper."""

EQUAL: Final = 1.01
"""Means this near to each other count as equal: the stand-in's groups never change their
GPUs, so that estimates by group and by group and GPU know the same and differ by luck."""

BEST_ESTIMATE: Final = "group_gpu_dur"

# A fifth of everything, for queues that plan ahead: these cost minutes at full size.
FIFTH_GPUS: Final = 1_300
FIFTH_JOBS: Final = 20_000
FIFTH_RATE: Final = 14

# A stream of short jobs that fills a small cluster, and one long job at its beginning.
STREAM_GPUS: Final = 8
STREAM_MINUTES: Final = 2_880
SHORT_S: Final = 60.0
LONG_S: Final = 3_600.0
PATIENCE: Final = 10
"""What ``sjf-aged`` has by default."""


@dataclass(frozen=True)
class SjfRun:
    """One run: what to call it, and its order, estimate and queue."""

    name: str
    order: str
    estimate: str | None
    queue: str = "skip"


VARIANTS: Final = (
    SjfRun("sjf", "sjf", BEST_ESTIMATE),
    SjfRun("sjf-aged", "sjf-aged", BEST_ESTIMATE),
    SjfRun("hrrn", "hrrn", BEST_ESTIMATE),
    SjfRun("sjf, learning live", "sjf", "learning"),
)
"""What else the best estimates can be used for, at full size."""

PLANNED: Final = (
    SjfRun("fifo", "fifo", None),
    SjfRun("sjf", "sjf", BEST_ESTIMATE),
    SjfRun("sjf, easy", "sjf", BEST_ESTIMATE, "easy"),
    SjfRun("sjf-aged, easy", "sjf-aged", BEST_ESTIMATE, "easy"),
)
"""Queues that plan ahead beside those that do not, on a fifth of everything."""

STARVING: Final = (
    SjfRun("sjf", "sjf", "duration"),
    SjfRun("sjf-aged", "sjf-aged", "duration"),
    SjfRun("hrrn", "hrrn", "duration"),
)

Summary = dict[str, float]


def _reproduce(setting: Setting) -> list[Row]:
    from interlane import wiring

    trace = wiring.any_trace(data_file(setting, STAND_IN))
    ladder = [
        SjfRun(f"{gpus}/{name}", "fifo" if estimate is None else "sjf", estimate)
        for gpus in PAPER_MEAN_S
        for name, estimate in ESTIMATES.items()
    ]
    stream = _stream()
    found = _played(
        setting,
        [_experiment(trace, run, int(run.name.split("/")[0]), RATE, setting) for run in ladder]
        + [_experiment(trace, run, 6500, RATE, setting) for run in VARIANTS[1:]]
        + [
            _experiment(trace, run, FIFTH_GPUS, FIFTH_RATE, setting, FIFTH_JOBS)
            for run in PLANNED
        ]
        + [_experiment(stream, run, STREAM_GPUS, None, setting) for run in STARVING],
    )
    names = [run.name for run in ladder]
    by_name = dict(zip(names, found, strict=False))
    rest = found[len(ladder) :]
    variants = [by_name["6500/group+user+gpu"], *rest[: len(VARIANTS) - 1]]
    planned = rest[len(VARIANTS) - 1 :][: len(PLANNED)]
    return [
        *_ladder(by_name),
        *_variants(by_name["6500/fifo"], variants),
        *_planned(planned),
        *_starving(rest[-len(STARVING) :]),
    ]


# -- runs -----------------------------------------------------------------------------


def _experiment(
    trace: "Trace",
    run: SjfRun,
    gpus: int,
    rate: int | None,
    setting: Setting,
    jobs: int | None = None,
) -> "Experiment":
    from interlane import wiring
    from interlane.sim.experiment import Experiment

    words = wiring.PolicyWords(run.order, "first-fit", run.queue, estimate=run.estimate)
    return Experiment(
        trace,
        wiring.cluster_of(f"pool:{gpus}"),
        wiring.choice_of(words),
        sample=jobs,
        sample_seed=setting.seed,
        rate=rate,
        seed=setting.seed,
    )


def _played(setting: Setting, experiments: "Sequence[Experiment]") -> list[Summary]:
    from interlane.sim.compare import compare

    ended = [0] * len(experiments)
    jobs = sum(experiment.jobs for experiment in experiments)

    def note(number: int, count: int) -> None:
        ended[number] = count
        setting.progress(sum(ended), jobs, "jobs")

    figures = ("mean_jct_s", "p99_wait_s", "max_wait_s")
    return [
        {figure: _number(summary[figure]) for figure in figures}
        for summary in compare(experiments, setting.processes, note)
    ]


def _number(value: object) -> float:
    assert isinstance(value, float | int)
    return float(value)


def _stream() -> "Trace":
    """Return a long job, and then for two days as many short ones as the cluster can take."""
    import polars as pl

    from interlane.traces.schema import Trace, canonical

    at_s = [0.0] + [
        60.0 * minute for minute in range(STREAM_MINUTES) for _ in range(STREAM_GPUS)
    ]
    columns = {
        "job_id": pl.Series([str(number) for number in range(len(at_s))]),
        "submit_s": pl.Series(at_s),
        "duration_s": pl.Series([LONG_S] + [SHORT_S] * (len(at_s) - 1)),
        "gpus": pl.Series([1] * len(at_s)),
    }
    return Trace("stream", canonical(columns))


# -- rows -----------------------------------------------------------------------------


def _ladder(found: Mapping[str, Summary]) -> Iterator[Row]:
    """Yield the paper's figure: means, gains over FIFO, and the order of predictions."""
    for gpus, published in PAPER_MEAN_S.items():
        means = {name: found[f"{gpus}/{name}"]["mean_jct_s"] for name in ESTIMATES}
        fifo = means["fifo"]
        for name, mean_s in means.items():
            what = f"{gpus} GPUs: mean completion, s, {_named(name)}"
            yield calibrated(what, round(mean_s), published[name], mean_s <= fifo, _FITTED)
        for name in ESTIMATES:
            if name != "fifo":
                lower = round(100 * (1 - means[name] / fifo), 1)
                theirs = round(100 * (1 - published[name] / published["fifo"]), 1)
                what = f"{gpus} GPUs: lower than FIFO, %, {_named(name)}"
                near = gpus != FITTED_GPUS or LEAST <= lower <= MOST
                yield calibrated(what, lower, theirs, near, _FITTED)
        order = list(means.values())
        holds = all(a <= EQUAL * b for a, b in pairwise(order))
        what = f"{gpus} GPUs: oracle <= group+user+gpu <= group+user <= user <= FIFO"
        yield claim(what, holds, "Better predictions would not lead to earlier ends.")


def _named(name: str) -> str:
    return "FIFO" if name == "fifo" else f"SJF by {name}"


def _variants(fifo: Summary, found: Sequence[Summary]) -> Iterator[Row]:
    """Yield means and waits of other uses of the best estimates, and of one that learns."""
    yield figure("6500 GPUs: P99 wait, s, FIFO", round(fifo["p99_wait_s"]))
    yield figure("6500 GPUs: worst wait, s, FIFO", round(fifo["max_wait_s"]))
    sjf = found[0]
    for run, one in zip(VARIANTS, found, strict=True):
        lower = round(100 * (1 - one["mean_jct_s"] / fifo["mean_jct_s"]), 1)
        what = f"6500 GPUs: lower than FIFO, %, {run.name}"
        yield calibrated(what, lower, None, lower >= LEAST, _FITTED)
        yield figure(f"6500 GPUs: P99 wait, s, {run.name}", round(one["p99_wait_s"]))
        yield figure(f"6500 GPUs: worst wait, s, {run.name}", round(one["max_wait_s"]))
    by_name = {run.name: one for run, one in zip(VARIANTS, found, strict=True)}
    yield claim(
        "6500 GPUs: ageing shortens the P99 wait of SJF",
        by_name["sjf-aged"]["p99_wait_s"] < sjf["p99_wait_s"],
        "Ageing would not help those whom SJF lets wait.",
    )
    yield claim(
        "6500 GPUs: a predictor that has only seen jobs end halves FIFO's mean completion",
        2 * by_name["sjf, learning live"]["mean_jct_s"] < fifo["mean_jct_s"],
        "What can be learned while jobs run would not be worth ordering by.",
    )


def _planned(found: Sequence[Summary]) -> Iterator[Row]:
    """Yield what planning ahead does to the mean, to the tail and to the worst wait."""
    for run, one in zip(PLANNED, found, strict=True):
        where = f"a fifth ({FIFTH_GPUS} GPUs), {run.name}"
        yield figure(f"{where}: mean completion, s", round(one["mean_jct_s"]))
        yield figure(f"{where}: P99 wait, s", round(one["p99_wait_s"]))
        yield figure(f"{where}: worst wait, s", round(one["max_wait_s"]))
    worst = [one["max_wait_s"] for one in found]
    yield claim(
        "a fifth: reservations shorten the worst wait of SJF",
        worst[2] < worst[1],
        "EASY would not keep what it reserves.",
    )


def _starving(found: Sequence[Summary]) -> Iterator[Row]:
    """Yield how long a long job waits behind a stream of short ones that fills the cluster."""
    stream_s = 60.0 * STREAM_MINUTES
    sjf, aged, hrrn = (one["max_wait_s"] for one in found)
    where = f"an hour's job behind two days of short ones, {STREAM_GPUS} GPUs"
    yield checked(
        f"{where}: waits, s, sjf (starves)",
        round(sjf),
        None,
        sjf >= stream_s,
        "The stream would leave room, and nothing would be shown about ageing.",
    )
    bound_s = PATIENCE * LONG_S
    late = "Ageing would not bound how long a job waits."
    most = f"at most {bound_s:,.0f}"
    yield checked(f"{where}: waits, s, sjf-aged", round(aged), most, aged <= bound_s, late)
    yield checked(f"{where}: waits, s, hrrn", round(hrrn), None, hrrn < stream_s, late)


SJF_PAPER: Final = Reproduction(
    "pai-sjf-paper",
    "Shortest job first by predicted durations lowers FIFO's average completion by 63-77 % at "
    "6,500 GPUs, and the better the prediction the more (100,000 stand-in jobs at the paper's "
    "load). SJF starves long jobs; ageing bounds how long.",
    "Estimates would not be worth what the paper says, or ageing would not keep its promise.",
    _reproduce,
    basis=Basis.FITTED,
    published=("interlane.reproduce.pai_sjf:PAPER_MEAN_S",),
    fitted=("interlane.reproduce.pai_sjf:RATE",),
)
