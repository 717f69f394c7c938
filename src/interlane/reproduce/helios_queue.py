"""A played queue beside the recorded one: Helios' Venus, April to September 2020.

The jobs at hand have no recorded waits.  But Lucid's authors published how many GPU jobs were
submitted and started in every ten minutes: the area between both curves is what jobs waited in
truth.  The same jobs are played on Venus' 135 machines as one pool.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from interlane.reproduce.base import Reproduction, Row, Setting, checked, claim, figure
from interlane.reproduce.pai import data_file
from interlane.reproduce.real_runtimes import HELIOS

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from interlane.sim.experiment import Experiment
    from interlane.traces.schema import Trace

COUNTS: Final = "lucid-colocation/venus_cluster_throughput.csv.gz"
SLOT_S: Final = 600
MACHINES, GPUS = 135, 8
MONTHS: Final = ("2020-04", "2020-05", "2020-06", "2020-07", "2020-08", "2020-09")
CUT_S: Final = 48 * 3600.0
RUNS: Final = (("strict", 1.0), ("skip", 1.0), ("skip", 2.0), ("skip", 3.0))
"""Queue, and how much longer runs are taken to be that the file at hand cuts at 48 hours."""
SHORT_S: Final = 600.0


def _queue(setting: Setting) -> list[Row]:
    import polars as pl

    counts = pl.read_csv(data_file(setting, COUNTS))
    jobs = pl.read_csv(data_file(setting, HELIOS))
    rows = [_same_submissions(jobs, counts), *_recorded(counts)]
    trace = _trace(setting)
    real_s = _waited_s(counts)
    mean_s: dict[tuple[str, float], float] = {}
    for done, (queue, longer) in enumerate(RUNS, 1):
        lasting = _lasting(trace, longer)
        wait_s, ran_s, asked, most = _played(_experiment(lasting, queue, setting))
        mean_s[queue, longer] = float(wait_s.mean())
        name = f"played, fifo/{queue}"
        name += "" if longer == 1.0 else f", runs cut at 48 h {longer:g} times as long"
        told = round(mean_s[queue, longer], 1)
        rows.append(figure(f"{name}: mean wait, s", told, f"{real_s:,.0f} in truth"))
        short = ran_s <= SHORT_S
        rows.append(
            figure(
                f"{name}: mean wait of jobs up to 10 min, and of longer ones, s",
                f"{wait_s[short].mean():,.0f}, {wait_s[~short].mean():,.0f}",
            )
        )
        large = asked > GPUS
        share = 100 * float(wait_s[large].sum() / max(wait_s.sum(), 1.0))
        rows.append(
            figure(f"{name}: of all waiting, jobs on several machines, %", round(share))
        )
        rows.append(
            checked(
                f"{name}: most GPUs held at once",
                most,
                f"at most {MACHINES * GPUS}",
                most <= MACHINES * GPUS,
                "The simulator would give GPUs away twice.",
            )
        )
        setting.progress(done, len(RUNS), "runs")
    return [
        *rows,
        claim(
            "played: backfilling waits less than strict FCFS",
            mean_s["skip", 1.0] < mean_s["strict", 1.0],
            "Backfilling would not fill the holes that a strict queue leaves.",
        ),
        claim(
            "played: one pool with backfilling waits less than Venus' virtual clusters did",
            mean_s["skip", 1.0] < real_s,
            "Load or machines would be other than Venus'.",
        ),
    ]


def _same_submissions(jobs: "pl.DataFrame", counts: "pl.DataFrame") -> Row:
    """Count the slots in which two publications of the same cluster differ."""
    import polars as pl

    ours = (
        jobs.with_columns(pl.col("submit_time").str.to_datetime().dt.truncate("10m"))
        .group_by("submit_time")
        .agg(pl.len().alias("ours"))
    )
    both = counts.with_columns(submit_time=pl.col("time").str.to_datetime()).join(
        ours, on="submit_time", how="left"
    )
    differ = int((both["ours"].fill_null(0) != both["submit_gpu_job"]).sum())
    return checked(
        f"slots of ten minutes in which two publications differ, of {counts.height:,}",
        differ,
        None,
        differ == 0,
        "Jobs would be missing, or shifted in time.",
    )


def _waiting(counts: "pl.DataFrame") -> "pl.DataFrame":
    """Return the jobs that waited at the end of each slot; it was never fewer than none."""
    import polars as pl

    left = pl.col("submit_gpu_job").cum_sum() - pl.col("start_gpu_job").cum_sum()
    return counts.with_columns(waiting=left - left.min(), month=pl.col("time").str.slice(0, 7))


def _waited_s(counts: "pl.DataFrame") -> float:
    waiting = _waiting(counts)
    return SLOT_S * float(waiting["waiting"].sum()) / float(waiting["submit_gpu_job"].sum())


def _recorded(counts: "pl.DataFrame") -> list[Row]:
    import polars as pl

    waiting = _waiting(counts)
    rows = [figure("in truth: mean wait, s, at least", round(_waited_s(counts)))]
    for month in MONTHS:
        part = waiting.filter(pl.col("month") == month)
        mean_s = SLOT_S * float(part["waiting"].sum()) / float(part["submit_gpu_job"].sum())
        rows.append(figure(f"in truth, {month}: mean wait, s, at least", round(mean_s)))
    return rows


def _trace(setting: Setting) -> "Trace":
    """Return the jobs, those of more than a machine's GPUs in instances of eight."""
    import polars as pl

    from interlane import wiring

    trace = wiring.any_trace(data_file(setting, HELIOS))
    large = pl.col("gpus") > GPUS
    frame = trace.frame.with_columns(
        instances=pl.when(large).then((pl.col("gpus") + GPUS - 1) // GPUS).otherwise(1),
        gpus=pl.when(large).then(GPUS).otherwise(pl.col("gpus")),
    )
    # All of a gang start together: no job of Venus' runs with a part of its GPUs.
    return replace(trace, frame=frame.with_columns(instances_min=pl.col("instances")))


def _lasting(trace: "Trace", longer: float) -> "Trace":
    import polars as pl

    cut = pl.col("duration_s") >= CUT_S
    lasts_s = pl.when(cut).then(longer * pl.col("duration_s")).otherwise(pl.col("duration_s"))
    return replace(trace, frame=trace.frame.with_columns(duration_s=lasts_s))


def _experiment(trace: "Trace", queue: str, setting: Setting) -> "Experiment":
    from interlane import wiring
    from interlane.model import MILLI, Cluster, Machine, MachineId
    from interlane.sim.experiment import Experiment
    from interlane.traces.clusters import ENDLESS_GPU_MIB, ENDLESS_MIB

    machines = tuple(
        Machine(
            MachineId(f"venus-{number:03}"),
            "V100",
            GPUS,
            96 * MILLI,
            ENDLESS_MIB,
            ENDLESS_GPU_MIB,
        )
        for number in range(MACHINES)
    )
    choice = wiring.choice_of(wiring.PolicyWords("fifo", "pack", queue))
    return Experiment(trace, Cluster("venus", machines), choice, seed=setting.seed)


class Played(NamedTuple):
    """What became of the jobs that finished."""

    wait_s: "NDArray[np.float64]"
    ran_s: "NDArray[np.float64]"
    gpus: "NDArray[np.int64]"
    most: int
    """GPUs held at once, at most."""


def _played(experiment: "Experiment") -> Played:
    """Play the jobs."""
    import numpy as np

    from interlane.metrics.outcomes import outcomes
    from interlane.sim.experiment import engine_for, jobs_in, play

    jobs, true_s = jobs_in(experiment)
    ends = outcomes(play(engine_for(experiment, jobs, true_s)))
    done = ends.done
    gpus = ends.gpu_milli[done] // 1000
    at_s = np.concatenate([ends.finished_s[done], ends.first_start_s[done]])
    change = np.concatenate([-gpus, gpus])
    # Ends before starts of the same moment.
    order = np.lexsort((change, at_s))
    most = int(np.cumsum(change[order]).max())
    return Played(ends.wait_s[done], ends.ran_s[done], gpus, most)


HELIOS_QUEUE: Final = Reproduction(
    "helios-queue",
    "125,303 real jobs of Helios' Venus played on its 1,080 GPUs, beside what they waited in "
    "truth by the published counts of submissions and starts.",
    "A played queue would say nothing about a real one.",
    _queue,
    teaches="Waits hinge on the 2 % of runs that this file cuts at 48 h: cut, one pool hardly "
    "waits where Venus' virtual clusters waited 21 minutes; three times as long, it waits for "
    "three hours. A trace without its tail says nothing about queues.",
)
