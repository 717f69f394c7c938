"""Traces played on clusters: simulate, compare, explain and tell a job's timeline."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from pathlib import Path
from typing import Final

from interlane import wiring
from interlane.metrics import timeline as timelines
from interlane.metrics.intervals import (
    LEVEL,
    Interval,
    PairedDifference,
    clearly_best,
    difference,
    interval,
)
from interlane.metrics.summary import Weight
from interlane.model import Cluster, InvalidField, UnknownName
from interlane.sim.compare import BEST_IS_LARGEST, best, judged
from interlane.sim.compare import compare as run_all
from interlane.sim.experiment import Experiment, RunResult, engine_for, jobs_in, play, run
from interlane.sim.explain import JobStatus, number_of, status
from interlane.sim.record import check_target, write_log
from interlane.traces.jobs import resampled
from interlane.traces.synth import synthesize
from interlane.usecases.reporter import SILENT, Reporter
from interlane.usecases.traces import TraceFile, note_oddities
from interlane.wiring import PolicyWords
from interlane.wiring.functions import FunctionWords, functions_of

LEAST_SEEDS: Final = 2

COLUMNS: Final = {
    "mean_jct_s": "mean JCT s",
    "p50_jct_s": "p50 JCT",
    "p99_jct_s": "p99 JCT",
    "mean_wait_s": "mean wait s",
    "p99_wait_s": "p99 wait",
    "makespan_s": "makespan s",
    "gpu_allocated_ratio": "GPU allocated",
    "fragmentation_ratio": "fragmented",
    "preemptions": "preemptions",
    "refused": "refused",
    "cpu_s": "CPU s",
}
"""The figures by which policies are compared, as tables call them."""

FUNCTION_COLUMNS: Final = {
    "p99_latency_s": "p99 latency s",
    "cold_starts": "cold starts",
    "deadline_miss_ratio": "late requests",
    "best_effort_gpu_h": "best-effort GPU h",
    "job_slowdown_mean": "job slowdown",
    "job_hours_over_limit_ratio": "job hours over limit",
}
"""Further ones where functions are played beside the jobs."""


def columns_of(summary: Mapping[str, object]) -> dict[str, str]:
    """Return the figures that a run has, as tables call them."""
    return {**COLUMNS, **FUNCTION_COLUMNS} if "requests" in summary else dict(COLUMNS)


def figure_text(figure: str, value: float) -> str:
    """Return a figure of a column as people read it."""
    if figure.endswith("_ratio"):
        return f"{100 * value:.1f} %"
    if figure in FINE:
        return f"{value:.3f}"
    return f"{value:.2f}" if figure == "cpu_s" else f"{value:,.0f}"


FINE: Final = frozenset({"p99_latency_s", "job_slowdown_mean"})
"""Figures of which the third digit counts."""


POLICIES: Final = (
    "order=fifo,queue=strict",
    "order=fifo,queue=skip",
    "order=fifo,queue=easy",
    "order=sjf",
    "order=srtf",
    "order=las",
)
"""What is compared when nobody names policies: from plain to clever."""


@dataclass(frozen=True, slots=True)
class RunWords:
    """What decides the outcome of a run, as people write it."""

    trace: TraceFile
    policy: PolicyWords
    cluster: str
    sample: int | None = None
    sample_seed: int = 42
    arrivals: str = wiring.TRACE_TIMES
    weight: str = Weight.JOB.value
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    speeds: Sequence[str] = ()
    slow_downs: Sequence[str] = ()
    failures: str | None = None
    seed: int = 0
    paranoid: bool = False
    functions: FunctionWords | None = None
    """Functions that are played beside the jobs."""


def experiments_of(
    words: RunWords, policies: Sequence[PolicyWords], reporter: Reporter
) -> list[Experiment]:
    """Return an experiment for each policy; all share their trace."""
    choices = [wiring.choice_of(policy) for policy in policies]
    known = [weight.value for weight in Weight]
    if words.weight not in known:
        raise UnknownName("weight", words.weight, known)
    rate, file = wiring.rate_of(words.arrivals), words.trace
    scenario = wiring.scenario_of(words.cluster, file.data)
    world = wiring.world_of(
        scenario,
        speeds=words.speeds,
        slow_downs=words.slow_downs,
        failures=words.failures,
        restart_s=words.restart_s,
        seed=words.seed,
    )
    trace = wiring.trace_of(
        file.path, scenario, fmt=file.fmt, skip_bad=file.skip_bad, data=file.data
    )
    if trace.bad_count:
        first = trace.bad[0]
        reporter.note(
            f"{file.path}: {trace.bad_count} bad rows left out, the first {first.file}, "
            f"line {first.line}: {first.what}"
        )
    note_oddities(file.path, trace, reporter)
    functions = None
    if words.functions is not None:
        untrained = {one.forecast for one in choices if one.forecast_model is None}
        functions = functions_of(words.functions, scenario.cluster, untrained)
    return [
        Experiment(
            trace,
            scenario.cluster,
            choice,
            sample=words.sample,
            sample_seed=words.sample_seed,
            rate=rate,
            weight=Weight(words.weight),
            world=world,
            seed=words.seed,
            checkpoint_s=words.checkpoint_s,
            paranoid=words.paranoid,
            functions=functions,
        )
        for choice in choices
    ]


def _experiment(words: RunWords, reporter: Reporter) -> Experiment:
    (experiment,) = experiments_of(words, [words.policy], reporter)
    return experiment


# -- one policy -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SimulatedJobs:
    """What came out of a run."""

    summary: dict[str, object]
    events: int
    refused: int
    """Jobs that can never run on the cluster."""
    first_refused: str | None
    """The first of them, and why."""


def simulate(
    words: RunWords, log: Path | None = None, *, reporter: Reporter = SILENT
) -> SimulatedJobs:
    """Play a trace on a cluster under one policy; write the event log if a file is given."""
    if log is not None:
        check_target(log)
    experiment = _experiment(words, reporter)
    with reporter.steps(experiment.name, experiment.jobs) as tell:
        result = run(experiment, tell)
    if log is not None:
        write_log(result.log, log)
    return SimulatedJobs(
        result.summary, len(result.log), result.refused, _first_refused(result)
    )


def _first_refused(result: RunResult) -> str | None:
    if not result.refused:
        return None
    number, refusal = next(iter(result.log.refusals.items()))
    return f"{result.log.jobs[number].id}: {refusal}"


# -- several policies -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ComparedPolicies:
    """The same jobs under several policies."""

    runs: Sequence[dict[str, object]]
    winners: dict[str, list[int]]
    """Figure -> the numbers of the runs that are best in it."""

    @property
    def document(self) -> dict[str, object]:
        """All of it, for JSON."""
        names = {
            figure: [self.runs[number]["policy"] for number in numbers]
            for figure, numbers in self.winners.items()
        }
        common = {key: self.runs[0][key] for key in ("trace", "cluster", "weight", "seed")}
        return {**common, "leads": names, "runs": self.runs}


def compare(
    words: RunWords,
    policies: Sequence[str] = (),
    processes: int | None = None,
    *,
    reporter: Reporter = SILENT,
) -> ComparedPolicies:
    """Play a trace under several policies; parts left out come from the policy of the run."""
    wanted = [wiring.policy_words(text, words.policy) for text in policies or POLICIES]
    return _compared(experiments_of(words, wanted, reporter), processes, reporter)


@dataclass(frozen=True, slots=True)
class ToldComparison:
    """One figure of one policy over several seeds."""

    interval: Interval
    beside: PairedDifference | None
    """How much larger it is than that of the policy with the best mean; None for that one."""


@dataclass(frozen=True, slots=True)
class ComparedOften:
    """Policies on several draws of the same trace."""

    policies: Sequence[str]
    seeds: int
    figures: Mapping[str, Sequence[ToldComparison]]
    """Figure -> what is told of each policy."""
    winners: Mapping[str, int | None]
    """Figure -> the policy that is best beyond doubt."""

    @property
    def document(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {
            "seeds": self.seeds,
            "level": LEVEL,
            "best": {
                figure: None if number is None else self.policies[number]
                for figure, number in self.winners.items()
            },
            "runs": [
                {
                    "policy": policy,
                    **{name: _told(told[number]) for name, told in self.figures.items()},
                }
                for number, policy in enumerate(self.policies)
            ],
        }


def _told(told: ToldComparison) -> dict[str, float]:
    found = {
        "mean": told.interval.mean,
        "low": told.interval.low,
        "high": told.interval.high,
    }
    if told.beside is not None:
        found["above_best"] = told.beside.interval.mean
        found["p_value"] = told.beside.p_value
    return found


def compare_often(
    words: RunWords,
    seeds: int,
    policies: Sequence[str] = (),
    processes: int | None = None,
    *,
    reporter: Reporter = SILENT,
) -> ComparedOften:
    """Play several draws of a trace under several policies, all of them on the same draws."""
    if seeds < LEAST_SEEDS:
        raise InvalidField("seeds", seeds, f"intervals need {LEAST_SEEDS} or more")
    wanted = [wiring.policy_words(text, words.policy) for text in policies or POLICIES]
    experiments = experiments_of(words, wanted, reporter)
    draws = [
        replace(experiment, trace=trace, seed=words.seed + draw)
        for draw in range(seeds)
        for trace in [resampled(experiments[0].trace, words.seed + draw)]
        for experiment in experiments
    ]
    runs = _compared(draws, processes, reporter).runs
    by_policy = [runs[number :: len(experiments)] for number in range(len(experiments))]
    names = [experiment.name for experiment in experiments]
    return often(names, by_policy)


def often(
    policies: Sequence[str], runs: Sequence[Sequence[Mapping[str, object]]]
) -> ComparedOften:
    """Return what the runs of each policy say, seed by seed."""
    figures, winners = {}, {}
    for figure in judged(runs[0][0]):
        columns = [[_figure(run[figure]) for run in of_policy] for of_policy in runs]
        largest = figure in BEST_IS_LARGEST
        means = [sum(column) / len(column) for column in columns]
        first = means.index(max(means) if largest else min(means))
        figures[figure] = [
            ToldComparison(
                interval(column), None if at == first else difference(column, columns[first])
            )
            for at, column in enumerate(columns)
        ]
        winners[figure] = clearly_best(columns, largest=largest)
    return ComparedOften(policies, len(runs[0]), figures, winners)


def _figure(value: object) -> float:
    return float(value) if isinstance(value, int | float) else nan


def compare_synthetic(
    cluster: Cluster,
    policies: Sequence[str],
    *,
    jobs: int,
    load: float,
    seed: int = 0,
    processes: int | None = None,
    reporter: Reporter = SILENT,
) -> ComparedPolicies:
    """Make jobs like those of PAI's trace for a cluster, and play them under policies."""
    trace = synthesize(jobs=jobs, cluster=cluster, load=load, seed=seed)
    choices = [wiring.choice_of(wiring.policy_words(text, PolicyWords())) for text in policies]
    experiments = [Experiment(trace, cluster, choice, seed=seed) for choice in choices]
    return _compared(experiments, processes, reporter)


def _compared(
    experiments: Sequence[Experiment], processes: int | None, reporter: Reporter
) -> ComparedPolicies:
    ended = [0] * len(experiments)
    jobs = sum(experiment.jobs for experiment in experiments)
    with reporter.steps(f"{len(experiments)} policies", jobs) as tell:

        def note(number: int, count: int) -> None:
            ended[number] = count
            tell(sum(ended))

        runs = run_all(experiments, processes or cores(), note)
    return ComparedPolicies(runs, best(runs))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


# -- one job --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Explained:
    """Where a job of a simulated run stands at a moment, and why."""

    policy: str
    status: JobStatus


def explain(
    words: RunWords, job: str, at_s: float, *, reporter: Reporter = SILENT
) -> Explained:
    """Play a trace up to a moment and say why a job waits."""
    if not isfinite(at_s):
        raise InvalidField("at", at_s, "it must be a number of seconds")
    experiment = _experiment(words, reporter)
    with reporter.steps(experiment.name, experiment.jobs) as tell:
        found = status(experiment, job, at_s, tell)
    return Explained(experiment.name, found)


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that happened to one job of a simulated run."""

    policy: str
    moments: Sequence[timelines.Moment]
    totals: dict[str, float]
    """Seconds that it waited, ran and took."""


def timeline(words: RunWords, job: str, *, reporter: Reporter = SILENT) -> Timeline:
    """Play a trace and tell one job's life."""
    experiment = _experiment(words, reporter)
    jobs, true_s = jobs_in(experiment)
    number = number_of(jobs, job)
    with reporter.steps(experiment.name, experiment.jobs) as tell:
        log = play(engine_for(experiment, jobs, true_s), progress=tell)
    return Timeline(
        experiment.name, timelines.timeline(log, number), timelines.totals(log, number)
    )
