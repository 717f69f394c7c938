"""The figures of one run, as functions of its log.

Times are of finished jobs only.  ``makespan_s`` is the second after the last completion, as
the published PAI simulator counts it.  ``wait_s`` is all time from submission to completion
in which a job did not run, so that time after a preemption counts.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from interlane.metrics.attempts import Attempts, attempts, held_milli
from interlane.metrics.kinds import Kinds
from interlane.metrics.log import EventLog
from interlane.metrics.machines import gpu_milli_s
from interlane.metrics.outcomes import Outcomes
from interlane.metrics.replay import fragmentation_ratio

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

JCT_PERCENTS = (50, 90, 95, 99)
WAIT_PERCENTS = (50, 90, 99)


class Weight(Enum):
    """What counts as one in means and percentiles."""

    JOB = "job"
    INSTANCE = "instance"
    """Every instance of a gang counts, as in the published PAI simulator."""

    def of(self, instances: Ints) -> Ints:
        """Return the weight of jobs with so many instances each."""
        return instances if self is Weight.INSTANCE else np.ones_like(instances)


@dataclass(frozen=True, slots=True)
class RunSpan:
    """From the first submission to the last completion."""

    begin_s: float
    end_s: float


def summarise(
    log: EventLog, outcomes: Outcomes, kinds: Kinds, weight: Weight = Weight.JOB
) -> dict[str, object]:
    """Return the figures of a run; None where nothing finished that could be measured."""
    done = outcomes.done
    counts = weight.of(outcomes.instances[done])
    jct_s, wait_s = outcomes.jct_s[done], outcomes.wait_s[done]
    tries = attempts(log)
    span = _span(outcomes)
    return {
        "jobs": int(done.sum()),
        "instances": int(outcomes.instances[done].sum()),
        "refused": len(log.refusals),
        "unfinished": len(log.jobs) - int(done.sum()) - len(log.refusals),
        "gpus": log.cluster.gpus,
        "machines": len(log.cluster),
        "mean_jct_s": mean(jct_s, counts),
        "mean_wait_s": mean(wait_s, counts),
        **{f"p{p}_jct_s": quantile(jct_s, counts, p / 100) for p in JCT_PERCENTS},
        **{f"p{p}_wait_s": quantile(wait_s, counts, p / 100) for p in WAIT_PERCENTS},
        "max_wait_s": float(wait_s.max()) if len(wait_s) else None,
        "makespan_s": None if span is None else span.end_s + 1,
        "gpu_allocated_ratio": gpu_allocated_ratio(log, tries, span),
        "fragmentation_ratio": None
        if span is None
        else fragmentation_ratio(log, tries, kinds, begin_s=span.begin_s, end_s=span.end_s),
        "preemptions": int(outcomes.preemptions.sum()),
        "growths": int(outcomes.growths.sum()),
        "events": len(log),
    }


def mean(values: Floats, counts: Ints) -> float | None:
    """Return the mean of values that occur so many times each."""
    return float((values * counts).sum() / counts.sum()) if len(values) else None


def quantile(values: Floats, counts: Ints, q: float) -> float | None:
    """Return a quantile of values that occur so many times each.

    The same as numpy's linear quantile of the list in which every value is repeated, without
    making that list.
    """
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(counts[order])
    place = q * (int(ends[-1]) - 1)
    low = int(place)
    high = min(low + 1, int(ends[-1]) - 1)
    below, above = values[order][np.searchsorted(ends, (low, high), "right")]
    # From the nearer side, as numpy does, so that the last digit agrees too.
    part, step = place - low, above - below
    return float(below + step * part if part < 0.5 else above - step * (1 - part))


def gpu_allocated_ratio(log: EventLog, tries: Attempts, span: RunSpan | None) -> float | None:
    """Return the GPU time held, over what there was from first submission to last end.

    Attempts that were preempted or lost count: their GPUs were taken.  What machines had
    while they were away, or somebody else had of them, was not there.
    """
    if span is None or span.end_s <= span.begin_s:
        return None
    there_milli_s = gpu_milli_s(log, span.begin_s, span.end_s)
    if there_milli_s <= 0:
        return None
    lengths_s = np.minimum(tries.end_s, span.end_s) - np.minimum(tries.start_s, span.end_s)
    held_milli_s = float((held_milli(log, tries) * lengths_s).sum())
    return held_milli_s / there_milli_s


def _span(outcomes: Outcomes) -> RunSpan | None:
    done = outcomes.done
    if not done.any():
        return None
    first_s = float(np.nanmin(outcomes.submitted_s))
    return RunSpan(first_s, float(outcomes.finished_s[done].max()))
