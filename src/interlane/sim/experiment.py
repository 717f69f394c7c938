"""One run: a trace, a cluster, a policy and a world in; a log and its figures out."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from interlane import compiling
from interlane._compiled_cache import has_code
from interlane.functions.watch import Forecast
from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import EventLog
from interlane.metrics.outcomes import Outcomes, outcomes
from interlane.metrics.summary import Weight, summarise
from interlane.model import Cluster, Demand, Job, Request
from interlane.policy.base import Order, TypeRule, TypicalDemand
from interlane.policy.catalogue import PlacerRecipe
from interlane.policy.colocate.catalogue import BOUNDED
from interlane.policy.policy import Discipline, Policy
from interlane.policy.preempt import Preemption
from interlane.policy.typical import typical_demands
from interlane.predict.arrivals.live import Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.recall import Recall
from interlane.sim.adapt import adaptation, let_start_with
from interlane.sim.engine import Simulator
from interlane.sim.function_setting import FunctionSetting
from interlane.sim.learning import LearningScheduler, learning_on
from interlane.sim.world import World
from interlane.traces.jobs import at_rate, jobs_of, sample
from interlane.traces.schema import TRUE_DURATION, Trace

WARM_UP_JOBS: Final = 20
"""Jobs played beforehand, so that compiled code is loaded when the clock starts."""

PLAIN_JOB_S: Final = 7e-4
PLAIN_MACHINE_S: Final = 1.4e-5
"""What a job costs in plain Python, and more with every machine: measured, roughly."""

Progress = Callable[[int], None]
"""Told how many jobs have ended."""


@dataclass(frozen=True)
class Choice:
    """A policy as an experiment names it."""

    order_name: str
    order: Order
    placer: PlacerRecipe
    queue: Discipline = Discipline.SKIP
    estimate: str | None = None
    """The trace's column that serves as the estimate, or the name of a predictor."""
    preemption: Preemption = field(default_factory=Preemption)
    predictor: Recall | None = None
    """Gives the estimates instead of a column, and learns as jobs end."""
    elastic: float | None = None
    """The share of their instances with which gangs may start; None leaves them whole."""
    passed_s_max: float = inf
    """See ``Policy``."""
    colocate: str = BOUNDED
    """The policy by which functions share GPUs with jobs, where functions are played."""
    forecast: Forecast = Forecast.PORTFOLIO
    """What decides how many replicas there are."""
    forecast_model: Trees | LsLstm | None = None
    """With what it forecasts; trained on the requests before those that are played without."""

    @property
    def name(self) -> str:
        """The choice in a word; an estimate that is the truth is called an oracle."""
        estimate = {None: "", TRUE_DURATION: "(oracle)"}.get(
            self.estimate, f"({self.estimate})"
        )
        elastic = "" if self.elastic is None else f"/elastic({self.elastic:g})"
        bound = "" if self.passed_s_max == inf else f":bound_s={self.passed_s_max:g}"
        queue = f"{self.queue.value}{bound}"
        return f"{self.order_name}{estimate}/{self.placer.name}/{queue}{elastic}"


@dataclass(frozen=True)
class Experiment:
    """All that decides the outcome of a run."""

    trace: Trace
    cluster: Cluster
    choice: Choice
    sample: int | None = None
    sample_seed: int = 42
    rate: int | None = None
    """Jobs that arrive together every minute; None keeps the trace's times."""
    weight: Weight = Weight.JOB
    world: World = field(default_factory=World)
    seed: int = 0
    checkpoint_s: float = 0.0
    """Seconds between checkpoints of every job."""
    paranoid: bool = False
    """Check all state after every moment."""
    functions: FunctionSetting | None = None
    """Functions that run beside the jobs."""

    @property
    def name(self) -> str:
        """The policy in a word; that of functions belongs to it where there are any."""
        choice = self.choice
        if self.functions is None:
            return choice.name
        return f"{choice.name} + {choice.colocate}/{choice.forecast}"

    @property
    def jobs(self) -> int:
        """How many jobs are played."""
        jobs = self.trace.jobs
        return jobs if self.sample is None else min(self.sample, jobs)

    @property
    def is_large(self) -> bool:
        """Whether compiling pays for this run alone."""
        job_s = PLAIN_JOB_S + PLAIN_MACHINE_S * len(self.cluster)
        return self.jobs * job_s > compiling.PATIENCE_S


@dataclass(frozen=True)
class RunResult:
    """What came out of a run."""

    experiment: Experiment
    log: EventLog
    outcomes: Outcomes
    summary: dict[str, object]
    cpu_s: float
    """CPU seconds of the simulation; making the jobs and compiling are counted apart."""
    compile_s: float
    decisions: int

    @property
    def refused(self) -> int:
        """Jobs that can never run on the cluster."""
        return len(self.log.refusals)


def jobs_in(experiment: Experiment) -> tuple[list[Job], list[float]]:
    """Return the jobs that the experiment plays, and how long each really takes."""
    trace = experiment.trace
    if experiment.sample is not None:
        trace = sample(trace, experiment.sample, experiment.sample_seed)
    if experiment.rate is not None:
        trace = at_rate(trace, experiment.rate)
    choice, adapt = experiment.choice, adaptation(experiment.cluster)
    return jobs_of(
        trace,
        estimate=choice.estimate if choice.predictor is None else None,
        adapt=adapt if choice.elastic is None else let_start_with(choice.elastic, adapt),
        checkpoint_s=experiment.checkpoint_s,
    )


def run(experiment: Experiment, progress: Progress | None = None) -> RunResult:
    """Play the whole experiment and return its log and figures."""
    begin_s = time.process_time()
    jobs, true_s = jobs_in(experiment)
    made_s = time.process_time() - begin_s
    compile_s = _warm_up(experiment, jobs, true_s)
    begin_s = time.process_time()
    engine = engine_for(experiment, jobs, true_s)
    log = play(engine, progress=progress)
    cpu_s = time.process_time() - begin_s
    ends = outcomes(log)
    figures = summarise(log, ends, _kinds(engine), experiment.weight)
    if engine.functions is not None:
        figures |= engine.functions.figures.summary()
    figures |= {
        "cpu_s": round(cpu_s, 4),
        "load_s": round(made_s, 4),
        "compile_s": round(compile_s, 4),
    }
    summary = {**_names(experiment), **figures, "decisions": engine.decisions}
    return RunResult(experiment, log, ends, summary, cpu_s, compile_s, engine.decisions)


def engine_for(experiment: Experiment, jobs: list[Job], true_s: list[float]) -> Simulator:
    """Return an engine at the beginning of time."""
    predictor = experiment.choice.predictor
    scheduler = Scheduler(experiment.cluster, policy_for(experiment, jobs), experiment.seed)
    learner = None
    if predictor is not None:
        learner = LearningScheduler(scheduler, learning_on(experiment.trace, predictor))
    setting, functions = experiment.functions, None
    if setting is not None:
        choice, machines = experiment.choice, tuple(experiment.cluster)
        forecast, model = choice.forecast, choice.forecast_model
        functions = setting.world(
            choice.colocate, forecast, model, machines, jobs, experiment.seed
        )
    return Simulator(
        scheduler,
        jobs,
        true_s,
        experiment.world,
        through=learner,
        functions=functions,
        paranoid=experiment.paranoid,
    )


def policy_for(experiment: Experiment, jobs: list[Job]) -> Policy:
    """Return the policy, told the typical demands of these jobs if it wants to know."""
    choice = experiment.choice
    typical: tuple[TypicalDemand, ...] = ()
    if choice.placer.needs_typical:
        types = choice.placer.types or TypeRule.EXACT
        typical = typical_demands(request_counts(jobs).items(), types)
    placer = choice.placer.make(typical)
    return Policy(
        choice.order,
        placer,
        choice.queue,
        choice.preemption,
        choice.name,
        choice.passed_s_max,
    )


def request_counts(jobs: list[Job]) -> Counter[Request]:
    """Return how many jobs make each request."""
    return Counter(job.request for job in jobs)


def play(
    engine: Simulator, *, until_s: float = inf, progress: Progress | None = None
) -> EventLog:
    """Let the engine run, to the end or to a time."""
    with _collector_spared():
        return engine.run(until_s, progress)


@contextmanager
def _collector_spared() -> Iterator[None]:
    """Pause the cycle collector: a run makes millions of objects and hardly a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def compile_first(experiments: Sequence[Experiment]) -> None:
    """Compile here what several processes would all compile, unless that was ever done."""
    large = [experiment for experiment in experiments if experiment.is_large]
    if large and not has_code():
        _warm_up(large[0], *jobs_in(large[0]))


def _warm_up(experiment: Experiment, jobs: list[Job], true_s: list[float]) -> float:
    """Play a few jobs for the sake of compilation; return the CPU seconds it took."""
    if experiment.is_large:
        compiling.compile_at_once()
    begin_s = time.process_time()
    alone = replace(experiment, functions=None)
    engine_for(alone, jobs[:WARM_UP_JOBS], true_s[:WARM_UP_JOBS]).run()
    return time.process_time() - begin_s


def _kinds(engine: Simulator) -> tuple[tuple[Demand, float], ...]:
    """Return the typical kinds of instances, by which fragmentation is measured."""
    types = engine.scheduler.policy.placer.types
    counts = request_counts(list(engine.jobs)).items()
    return tuple((kind.demand, kind.weight) for kind in typical_demands(counts, types))


def _names(experiment: Experiment) -> dict[str, object]:
    choice, setting = experiment.choice, experiment.functions
    beside: dict[str, object] = (
        {}
        if setting is None
        else {
            "functions": setting.load.name,
            "colocate": choice.colocate,
            "forecast": choice.forecast.value,
            "truth": setting.truth.name,
        }
    )
    return {
        "policy": experiment.name,
        "trace": experiment.trace.name,
        "cluster": experiment.cluster.name,
        "order": choice.order_name,
        "placer": choice.placer.name,
        "queue": choice.queue.value,
        "estimate": choice.estimate,
        "elastic": choice.elastic,
        "weight": experiment.weight.value,
        "seed": experiment.seed,
        **beside,
    }
