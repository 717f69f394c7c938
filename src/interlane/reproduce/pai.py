"""The published simulator of "MLaaS in the Wild" (NSDI 2022), digit for digit."""

from typing import TYPE_CHECKING, Final

from interlane.model import InvalidInput
from interlane.reproduce.base import Basis, Reproduction, Row, Setting, checked

if TYPE_CHECKING:
    from pathlib import Path

    from interlane.sim.experiment import Experiment, RunResult
    from interlane.traces.schema import Trace

REAL_JOBS: Final = "pai-v2020/pai_real_1000jobs.csv"
REAL_STARTS: Final = "pai-v2020/pai_real_1000jobs_fifo_pack_hetero_result.csv"
STAND_IN: Final = "pai-v2020/standin_estimate_100K.csv.gz"

FIFO_STARTS: Final = 1000
FIFO_PRINTED: Final = {
    "mean_jct_s": 6695.554549,
    "mean_wait_s": 136.132600,
    "makespan_s": 522900,
    "instances": 4638,
}
"""What the published simulator prints of its FIFO run."""

SJF_JOBS: Final = 20_000
SJF_RATE: Final = 1_000
SJF_MEAN_JCT_S: Final = {
    ("SJF", 6500): 6279.717,
    ("SJGG", 6500): 6309.403,
    ("SJG", 6500): 6274.447,
    ("SJU", 6500): 7993.845,
    ("FIFO", 6500): 9045.458,
    ("SJF", 3000): 7916.500,
    ("SJGG", 3000): 7893.167,
    ("SJG", 3000): 7949.628,
    ("SJU", 3000): 13829.734,
    ("FIFO", 3000): 16698.581,
}
"""(order, GPUs) -> mean completion time that the published program prints on our file."""

ESTIMATES: Final = {
    "SJF": "duration",
    "SJGG": "group_gpu_dur",
    "SJG": "group_dur",
    "SJU": "user_dur",
    "FIFO": None,
}


def data_file(setting: Setting, name: str) -> "Path":
    """Return a file of the published data, or raise with what to do about it."""
    path = None if setting.data is None else setting.data / name
    if path is None or not path.is_file():
        raise InvalidInput(
            f"The reproduction needs {path or name}, which is not there; name the directory "
            "of published traces with --data or INTERLANE_DATA."
        )
    return path


def _rounded(what: str, ours: object, published: float, digits: int) -> Row:
    """Compare as printed: both rounded to the digits that were published."""
    assert isinstance(ours, float | int)
    return checked(what, round(ours, digits), published, round(ours, digits) == published)


def _fifo_1000(setting: Setting) -> list[Row]:
    from interlane import wiring
    from interlane.metrics.summary import Weight
    from interlane.sim.experiment import Experiment, run

    starts = data_file(setting, REAL_STARTS)
    cluster = wiring.cluster_of("pai2020-1to5")
    trace = wiring.trace_of(data_file(setting, REAL_JOBS), cluster)
    choice = wiring.choice_of(wiring.PolicyWords("fifo", "pai-pack"))
    result = run(
        Experiment(trace, cluster, choice, weight=Weight.INSTANCE, seed=setting.seed),
        lambda ended: setting.progress(ended, trace.jobs, "jobs"),
    )
    summary, equal = result.summary, _equal_starts(result, starts)
    whats = {
        "mean JCT per instance, s": ("mean_jct_s", 6),
        "mean wait per instance, s": ("mean_wait_s", 6),
        "makespan, s": ("makespan_s", 0),
        "instances done": ("instances", 0),
    }
    return [
        checked(
            "jobs that start in the published second", equal, FIFO_STARTS, equal == FIFO_STARTS
        ),
        *(
            _rounded(what, summary[key], FIFO_PRINTED[key], digits)
            for what, (key, digits) in whats.items()
        ),
    ]


def _equal_starts(result: "RunResult", published: "Path") -> int:
    """Return how many jobs start in the second in which they started in the original."""
    import polars as pl

    frame = pl.read_csv(published)
    expected_s = dict(zip(frame["job_id"].cast(pl.String), frame["start_time"], strict=True))
    ours_s = zip(result.log.jobs, result.outcomes.first_start_s.tolist(), strict=True)
    return sum(start_s == expected_s.get(str(job.id)) for job, start_s in ours_s)


def _sjf(setting: Setting) -> list[Row]:
    from interlane import wiring
    from interlane.sim.compare import compare

    cluster = wiring.cluster_of("pool:6500")
    trace = wiring.trace_of(data_file(setting, STAND_IN), cluster)
    experiments = [_pooled(trace, name, gpus, setting.seed) for name, gpus in SJF_MEAN_JCT_S]
    ended = [0] * len(experiments)

    def note(number: int, count: int) -> None:
        ended[number] = count
        setting.progress(sum(ended), SJF_JOBS * len(ended), "jobs")

    summaries = compare(experiments, setting.processes, note)
    return [
        _rounded(f"mean JCT, {name}, {gpus} GPUs, s", summary["mean_jct_s"], published, 3)
        for ((name, gpus), published), summary in zip(
            SJF_MEAN_JCT_S.items(), summaries, strict=True
        )
    ]


def _pooled(trace: "Trace", name: str, gpus: int, seed: int) -> "Experiment":
    from interlane import wiring
    from interlane.sim.experiment import Experiment

    estimate = ESTIMATES[name]
    order = "fifo" if estimate is None else "sjf"
    return Experiment(
        trace,
        wiring.cluster_of(f"pool:{gpus}"),
        wiring.choice_of(wiring.PolicyWords(order, "first-fit", estimate=estimate)),
        sample=SJF_JOBS,
        sample_seed=seed,
        rate=SJF_RATE,
        seed=seed,
    )


FIFO_1000: Final = Reproduction(
    "pai-fifo-1000",
    "The published simulator's FIFO run of 1,000 real PAI jobs on 380 unlike machines, with "
    "its packing order: every start time and the means that it prints.",
    "The kernel would place gangs, break ties or count time otherwise than the published "
    "model, and no other figure here could be compared with the paper's.",
    _fifo_1000,
    published=("interlane.reproduce.pai:FIFO_STARTS", "interlane.reproduce.pai:FIFO_PRINTED"),
)

SJF: Final = Reproduction(
    "pai-sjf",
    "The published program and ours, run on the same file of ours: mean completion times of "
    "shortest-job-first with three kinds of estimates, with the truth, and of FIFO, for 20,000 "
    "drawn stand-in jobs on pooled clusters of 6,500 and 3,000 GPUs. The paper's own jobs are "
    "not in it.",
    "Sampling, arrivals, queue order or backfilling would differ from the published "
    "simulator's, so that gains by better estimates could not be compared.",
    _sjf,
    basis=Basis.DRAWN,
    published=("interlane.reproduce.pai:SJF_MEAN_JCT_S",),
)
