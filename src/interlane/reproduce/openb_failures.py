"""Pods that fail, and pods that are cancelled: openb played as it happened.

Philly's and Helios' files at hand tell no ends.  openb's do: a pod ran, succeeded, failed or
was deleted while it was still pending.  Failing pods end when they ended, pending ones are
cancelled when they were.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Reproduction, Row, Setting, checked, figure
from interlane.reproduce.pai import data_file
from interlane.reproduce.pai_sharing import HOUR_S
from interlane.reproduce.real_sharing import PODS, cluster_of, on_any_type

if TYPE_CHECKING:
    import polars as pl

    from interlane.metrics.log import EventLog
    from interlane.model import Job, JobId
    from interlane.traces.schema import Trace

GPUS: Final = 40
"""So few that pods queue: without sharing openb needs 42 on average."""
PHASES: Final = ("Running", "Succeeded", "Failed", "Pending")


def _failures(setting: Setting) -> list[Row]:
    import polars as pl

    from interlane import wiring

    pods = pl.read_csv(data_file(setting, PODS)).filter(pl.col("num_gpu") > 0)
    trace = on_any_type(wiring.any_trace(data_file(setting, PODS)))
    phase = dict(zip(pods["name"], pods["pod_phase"], strict=True))
    deleted_s = dict(zip(pods["name"], pods["deletion_time"].cast(float), strict=True))
    ids = trace.frame["job_id"]
    pending = {one for one in ids if phase[one] == "Pending"}
    runs = {
        "as it happened": (trace, {one: deleted_s[one] for one in pending}),
        "nobody takes anything back": (trace, {}),
        "without those that fail": (_without(trace, phase, "Failed"), {}),
    }
    rows = [*_held(pods)]
    for done, (name, (played, taken_s)) in enumerate(runs.items(), 1):
        rows += _played(name, played, taken_s, pending, setting)
        setting.progress(done, len(runs), "runs")
    return rows


def _held(pods: "pl.DataFrame") -> list[Row]:
    """Return how many pods end how, and what they held of GPUs."""
    import polars as pl

    ran = pods.filter(pl.col("scheduled_time").is_not_null())
    hours = (
        (pl.col("deletion_time") - pl.col("scheduled_time"))
        * pl.col("num_gpu")
        * pl.col("gpu_milli")
        / (1000 * HOUR_S)
    )
    total = float(ran.select(hours.sum()).item())
    rows = []
    for phase in PHASES:
        of_phase = pl.col("pod_phase") == phase
        rows.append(figure(f"GPU pods: {phase}", pods.filter(of_phase).height))
        part = float(ran.filter(of_phase).select(hours.sum()).item() or 0.0)
        rows.append(figure(f"GPU hours: {phase}, %", round(100 * part / total, 1)))
    return rows


def _without(trace: "Trace", phase: dict[str, str], which: str) -> "Trace":
    import polars as pl

    kept = pl.Series([phase[one] != which for one in trace.frame["job_id"]])
    return replace(trace, frame=trace.frame.filter(kept))


def _played(
    name: str,
    trace: "Trace",
    taken_s: dict[str, float],
    pending: set[str],
    setting: Setting,
) -> list[Row]:
    from interlane import wiring
    from interlane.metrics.outcomes import outcomes
    from interlane.model import JobId
    from interlane.sim.experiment import Experiment, engine_for, jobs_in, play
    from interlane.sim.world import World

    world = World(withdrawn_s={JobId(one): at_s for one, at_s in taken_s.items()})
    choice = wiring.choice_of(wiring.PolicyWords("fifo", "best-fit"))
    experiment = Experiment(trace, cluster_of(GPUS), choice, world=world, seed=setting.seed)
    jobs, true_s = jobs_in(experiment)
    log = play(engine_for(experiment, jobs, true_s))
    ends = outcomes(log)
    counted = [job.id not in pending for job in jobs]
    wait_s = ends.wait_s[counted & ends.done]
    said = f"{name}, {GPUS} GPUs"
    return [
        figure(f"{said}: mean wait of pods that ran, s", round(float(wait_s.mean()))),
        *_kept(said, log, jobs, world.withdrawn_s),
    ]


def _kept(
    name: str, log: "EventLog", jobs: "list[Job]", taken_s: "Mapping[JobId, float]"
) -> list[Row]:
    """Check that everybody has an end, and that who was cancelled holds nothing after it."""
    from interlane.metrics.log import LogEvent

    at_s, events, subjects = log.columns()
    ended = {
        int(subject): (float(moment_s), int(event))
        for moment_s, event, subject in zip(at_s, events, subjects, strict=True)
        if event in (LogEvent.FINISHED, LogEvent.CANCELLED, LogEvent.REFUSED)
    }
    late = sum(
        job.id in taken_s and ended[number][0] > taken_s[job.id]
        for number, job in enumerate(jobs)
        if number in ended
    )
    taken = sum(event == LogEvent.CANCELLED for _, event in ended.values())
    rows = [
        checked(
            f"{name}: pods without an end, of {len(jobs):,}",
            len(jobs) - len(ended),
            None,
            len(ended) == len(jobs),
            "The simulator would lose jobs.",
        )
    ]
    if taken_s:
        rows += [
            figure(f"{name}: cancelled before they ended, of {len(taken_s)}", taken),
            checked(
                f"{name}: pods that go on after they were cancelled",
                late,
                None,
                late == 0 and taken > 0,
                "Jobs that users cancel would go on holding GPUs.",
            ),
        ]
    return rows


FAILURES: Final = Reproduction(
    "openb-failures",
    "openb's pods played as they ended: a third of those that ran on GPUs failed, some were "
    "deleted before they ran; what that does to the others' waits on 40 GPUs.",
    "Work that fails or is cancelled would be played as if it had been done.",
    _failures,
    teaches="Three GPU pods in ten fail and hold 2 % of the GPU time, yet without them the "
    "others would wait half as long: failures come in bursts, and cost the queue, not GPUs.",
)
