"""What a run on devices with lanes came to."""

from dataclasses import dataclass
from statistics import fmean, quantiles

from interlane.sim.lanes import LaneRun


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """Times are over the jobs that ended; waiting is until the first iteration."""

    jobs: int
    refused: int
    makespan_s: float
    mean_jct_s: float
    p95_jct_s: float
    mean_wait_s: float
    switches: int
    busy_percent: float
    """Share of the devices' time, until the last job ended, in which something ran."""


def figures_of(run: LaneRun, devices: int = 1) -> LaneFigures:
    """Return the figures of a run; times are 0 if no job ended."""
    ended_s = [one.finished_s for one in run.outcomes if one.finished_s is not None]
    jct_s = [one.completion_s for one in run.outcomes if one.completion_s is not None]
    waits_s = [one.waited_s for one in run.outcomes if one.waited_s is not None]
    makespan_s = max(ended_s, default=0.0)
    return LaneFigures(
        jobs=len(run.outcomes),
        refused=len(run.outcomes) - len(ended_s),
        makespan_s=makespan_s,
        mean_jct_s=fmean(jct_s or [0.0]),
        p95_jct_s=_p95(jct_s),
        mean_wait_s=fmean(waits_s or [0.0]),
        switches=run.switches,
        busy_percent=100 * run.busy_s / (devices * makespan_s) if makespan_s else 0.0,
    )


def _p95(values: list[float]) -> float:
    if len(values) < 2:
        return sum(values)
    return quantiles(values, n=20, method="inclusive")[-1]
