"""Simulations and comparisons as Python meets them: frames, plots, tables in a notebook."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl
import yaml

from interlane import wiring
from interlane.api.html import compared_table, summary_table
from interlane.metrics.log import OF_MACHINES
from interlane.model import MILLI
from interlane.policy.base import Placer
from interlane.policy.catalogue import PlacerRecipe
from interlane.sim.compare import best
from interlane.sim.experiment import Experiment, RunResult, run
from interlane.usecases.reporter import SILENT
from interlane.usecases.simulate import COLUMNS, POLICIES, RunWords, experiments_of
from interlane.usecases.traces import TraceFile
from interlane.wiring import PolicyWords

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TraceLike = str | Path | pl.DataFrame
"""A file of any known format, or a frame in interlane's own schema."""

ClusterLike = str | Path | Mapping[str, Any]
"""A built-in name, a file, or what such a file holds."""

PlacerLike = str | Callable[..., Placer]
"""A name with settings, ``file.py:Class``, or a class of one's own."""


@dataclass(frozen=True, slots=True, repr=False)
class Simulation:
    """One trace played on one cluster under one policy."""

    _result: RunResult

    @property
    def policy(self) -> str:
        """The policy in a word."""
        return str(self._result.summary["policy"])

    @property
    def summary(self) -> dict[str, Any]:
        """All figures; what each means is on the documentation's page 'Summary'."""
        return dict(self._result.summary)

    def frame(self) -> pl.DataFrame:
        """Return one row per job: when it came, started and ended, how long it waited."""
        log, ends = self._result.log, self._result.outcomes
        jobs = log.jobs
        return pl.DataFrame(
            {
                "job_id": [job.id for job in jobs],
                "user": [job.user for job in jobs],
                "submitted_s": ends.submitted_s,
                "started_s": ends.first_start_s,
                "finished_s": ends.finished_s,
                "wait_s": ends.wait_s,
                "ran_s": ends.ran_s,
                "jct_s": ends.jct_s,
                "instances": ends.instances,
                "gpus": ends.gpu_milli / MILLI,
                "preemptions": ends.preemptions,
                "refused": [number in log.refusals for number in range(len(jobs))],
            }
        ).with_columns(pl.selectors.float().fill_nan(None))

    def events(self) -> pl.DataFrame:
        """Return one row per event of the log, in order."""
        log = self._result.log
        rows = [
            (
                line.at_s,
                line.kind.name.lower(),
                None if line.kind in OF_MACHINES else log.jobs[line.subject].id,
                line.placement and ",".join(line.placement.machines),
                line.why,
            )
            for line in log.lines()
        ]
        schema = {
            "at_s": pl.Float64,
            "event": pl.String,
            "job_id": pl.String,
            "machines": pl.String,
            "why": pl.String,
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    def plot(self) -> "Figure":
        """Draw GPUs in use and jobs that wait, over time; needs ``interlane[report]``."""
        from interlane.api.plots import over_time

        return over_time(self._result.log, self._result.experiment.cluster.gpus)

    def __repr__(self) -> str:
        told = self._result.summary
        return (
            f"<Simulation of {told['jobs']:,} jobs on {told['cluster']} under {self.policy}: "
            f"mean wait {told['mean_wait_s']:,.0f} s>"
        )

    def _repr_html_(self) -> str:
        return summary_table(repr(self)[1:-1], self._result.summary)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The same jobs under several policies."""

    runs: tuple[Simulation, ...]
    """One simulation per policy, in the order given."""

    @property
    def leads(self) -> dict[str, list[str]]:
        """Figure -> the policies that lead in it; one run does not tell who is best."""
        winners = best([run.summary for run in self.runs])
        return {
            figure: [self.runs[number].policy for number in numbers]
            for figure, numbers in winners.items()
        }

    def frame(self) -> pl.DataFrame:
        """Return one row per policy, with the figures that tables show."""
        return pl.DataFrame(
            [
                {"policy": run.policy, **{figure: run.summary[figure] for figure in COLUMNS}}
                for run in self.runs
            ]
        )

    def plot(self) -> "Figure":
        """Draw how many jobs waited how long, a curve per policy; needs ``[report]``."""
        from interlane.api.plots import waits

        return waits({run.policy: run.frame() for run in self.runs})

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(run.policy for run in self.runs)}>"

    def _repr_html_(self) -> str:
        return compared_table([run.summary for run in self.runs], self.leads)


def simulate(
    trace: TraceLike,
    cluster: ClusterLike,
    policy: str = "",
    *,
    placer: PlacerLike | None = None,
    sample: int | None = None,
    seed: int = 0,
    arrivals: str = wiring.TRACE_TIMES,
) -> Simulation:
    """Play a trace on a cluster under one policy.

    ``policy`` reads like ``"order=sjf,placer=fgd,queue=easy,estimate=group_dur"``; what is
    left out is fifo, pack and skip.  ``placer`` may be a class of your own.  ``sample`` plays
    so many jobs, ``arrivals`` is ``"trace"`` or jobs per minute.
    """
    (found,) = compare(
        trace,
        cluster,
        [policy],
        placer=placer,
        sample=sample,
        seed=seed,
        arrivals=arrivals,
    ).runs
    return found


def compare(
    trace: TraceLike,
    cluster: ClusterLike,
    policies: Sequence[str | Callable[..., Placer]] = POLICIES,
    *,
    placer: PlacerLike | None = None,
    sample: int | None = None,
    seed: int = 0,
    arrivals: str = wiring.TRACE_TIMES,
) -> Comparison:
    """Play a trace under several policies, one after the other.

    A policy is a text as ``simulate`` takes it, or a class of your own that places jobs.
    """
    parts = [_parts(policy, placer) for policy in policies]
    with _files(trace, cluster) as (path, where):
        words = RunWords(
            TraceFile(path), PolicyWords(), where, sample, arrivals=arrivals, seed=seed
        )
        experiments = experiments_of(words, [words for words, _ in parts], SILENT)
    return Comparison(
        tuple(
            Simulation(run(_with(experiment, own)))
            for experiment, (_, own) in zip(experiments, parts, strict=True)
        )
    )


Own = Callable[..., Placer] | None


def _parts(
    policy: str | Callable[..., Placer], placer: PlacerLike | None
) -> tuple[PolicyWords, Own]:
    """Return a policy in words, and the class that places its jobs if it is one's own."""
    if not isinstance(policy, str):
        return PolicyWords(), policy
    base = PolicyWords(placer=placer) if isinstance(placer, str) else PolicyWords()
    words = wiring.policy_words(policy, base) if policy else base
    return words, None if isinstance(placer, str) else placer


def _with(experiment: Experiment, own: Own) -> Experiment:
    if own is None:
        return experiment
    name = getattr(own, "__name__", type(own).__name__).lower()
    choice = replace(experiment.choice, placer=PlacerRecipe(name, own))
    return replace(experiment, choice=choice)


@contextmanager
def _files(trace: TraceLike, cluster: ClusterLike) -> Iterator[tuple[Path, str]]:
    """Yield where the trace and the cluster are; frames and mappings are written first."""
    with TemporaryDirectory(prefix="interlane-") as folder:
        path, where = Path(folder) / "frame.parquet", Path(folder) / "cluster.yaml"
        if isinstance(trace, pl.DataFrame):
            trace.write_parquet(path)
        else:
            path = Path(trace)
        if isinstance(cluster, Mapping):
            where.write_text(yaml.safe_dump(dict(cluster)), encoding="utf-8")
            cluster = where
        yield path, str(cluster)
