"""How long jobs will run: train, judge and apply models."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from interlane import wiring
from interlane.model import UnknownName
from interlane.predict.catalogue import PREDICTORS, make_predictor
from interlane.predict.evaluate import RunSplit
from interlane.predict.evaluate import evaluate as judge
from interlane.predict.naive import NAIVE
from interlane.predict.runs import Runs, informative
from interlane.predict.store import FORMAT, VERSION, DurationModel, load, save
from interlane.sim.learning import runs_of
from interlane.traces.schema import Trace
from interlane.traces.write import write_trace
from interlane.usecases.reporter import SILENT, Reporter
from interlane.usecases.traces import TraceFile, note_oddities

MANY: Final = 5_000
"""Jobs from which on a model may take a while."""

BY_TIME: Final = "time"
SPLITS: Final = (BY_TIME, "random")
NOBODY_KNOWN: Final = 4
"""The basis of an estimate from which on neither its group nor its user was known."""


@dataclass(frozen=True, slots=True)
class TrainedDurations:
    """A model on disk."""

    jobs: int
    """Learned from."""
    sha256: str
    fallback_s: float
    """Estimate of a job never seen before."""


def train(
    trace: TraceFile,
    out: Path,
    *,
    model: str = "recall",
    keys: str | None = None,
    reporter: Reporter = SILENT,
) -> TrainedDurations:
    """Learn how long the jobs of a trace ran, and write what was learned to a file."""
    predictor = make_predictor(model, keys)
    table = _read(trace, reporter)
    runs = _informative(table, reporter)
    with _busy(reporter, "Learning from", runs):
        predictor.fit(runs)
    digest = save(DurationModel(predictor, _account(table, runs)), out)
    return TrainedDurations(len(runs), digest, predictor.fallback_s)


@dataclass(frozen=True, slots=True)
class JudgedDurations:
    """How well models estimate what they have not seen."""

    trace: str
    split: str
    seed: int | None
    """Of a random split."""
    learned_from: int
    judged: int
    models: dict[str, dict[str, float]]
    """Model -> figure -> value."""


def evaluate(
    trace: TraceFile,
    *,
    split: str = BY_TIME,
    models: Sequence[str] = (),
    keys: str | None = None,
    seed: int = 42,
    reporter: Reporter = SILENT,
) -> JudgedDurations:
    """Judge models, all unless named, on jobs that they have not seen; naive ones beside."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    names = dict.fromkeys([*(models or PREDICTORS), *NAIVE])
    made = {name: make_predictor(name, keys) for name in names}
    table = _read(trace, reporter)
    runs = _informative(table, reporter)
    by_time = split == BY_TIME
    parted = RunSplit.by_time(runs) if by_time else RunSplit.at_random(runs, seed)
    with _busy(reporter, "Judging models on", runs):
        found = judge(parted, made, learning=by_time)
    return JudgedDurations(
        table.name,
        split,
        None if by_time else seed,
        len(parted.known),
        int(parted.judged.sum()),
        found,
    )


@dataclass(frozen=True, slots=True)
class ShownDurations:
    """What a model is."""

    model: str
    format: str
    version: int
    sha256: str
    trained_on: dict[str, object]
    fallback_s: float


def show(path: Path) -> ShownDurations:
    """Read what a model says of itself."""
    found = load(path)
    return ShownDurations(
        found.name,
        FORMAT,
        VERSION,
        found.sha256,
        dict(found.trained_on),
        round(found.predictor.fallback_s, 3),
    )


@dataclass(frozen=True, slots=True)
class AppliedEstimates:
    """Estimates written into a trace."""

    estimates: int
    unknown: int
    """Of jobs of which neither group nor user was known."""


def apply(
    trace: TraceFile, model: Path, out: Path, *, reporter: Reporter = SILENT
) -> AppliedEstimates:
    """Write a trace with estimates: predicted_s, predicted_p10_s and predicted_p90_s."""
    predictor = load(model).predictor
    table = _read(trace, reporter)
    _informative(table, reporter)
    runs = runs_of(table)
    with _busy(reporter, "Estimating", runs):
        estimates = predictor.predict(runs)
    told = {
        "predicted_s": estimates.seconds,
        "predicted_p10_s": estimates.low_s,
        "predicted_p90_s": estimates.high_s,
    }
    job = table.frame["job_id"].rle_id().to_numpy()
    columns = [pl.Series(name, seconds[job].round(3)) for name, seconds in told.items()]
    write_trace(replace(table, frame=table.frame.with_columns(columns)), out)
    return AppliedEstimates(len(estimates), int((estimates.basis >= NOBODY_KNOWN).sum()))


def _busy(reporter: Reporter, what: str, runs: Runs) -> AbstractContextManager[None]:
    """Say what is going on, unless a few jobs cannot take long."""
    if len(runs) < MANY:
        return nullcontext()
    return reporter.busy(f"{what} {len(runs):,} jobs...")


def _read(trace: TraceFile, reporter: Reporter) -> Trace:
    """Read a trace; note what is wrong with it."""
    table = wiring.any_trace(
        trace.path, fmt=trace.fmt, skip_bad=trace.skip_bad, data=trace.data
    )
    if table.bad_count:
        first = table.bad[0]
        reporter.note(
            f"{trace.path}: {table.bad_count} bad rows left out, the first line {first.line}: "
            f"{first.what}"
        )
    note_oddities(trace.path, table, reporter)
    return table


def _informative(table: Trace, reporter: Reporter) -> Runs:
    """Return the jobs as a model sees them; note what their names do not tell."""
    runs, notes = informative(runs_of(table))
    for note in notes:
        reporter.note(note)
    return runs


def _account(trace: Trace, runs: Runs) -> dict[str, object]:
    """Return what a model was trained on, for its file."""
    return {
        "trace": trace.name,
        "jobs": len(runs),
        "groups": len(set(runs.group) - {""}),
        "users": len(set(runs.user) - {""}),
        "first_submit_s": float(runs.submit_s.min()),
        "last_submit_s": float(runs.submit_s.max()),
    }
