"""``interlane predict``: learn from traces what is not known yet."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli import arrivals, degradation
from interlane.cli.options import (
    DataOption,
    FormatOption,
    ModelArgument,
    ModelOutOption,
    SeedOption,
    SkipOption,
    TraceArgument,
    say_notes,
)
from interlane.cli.output import Output, OutputOption, emit, flat, grid, say
from interlane.cli.progress import saying_if_slow

if TYPE_CHECKING:
    from interlane.predict.guesses import Predictor
    from interlane.predict.runs import Runs
    from interlane.traces.schema import Trace

app = typer.Typer(
    help="Learn from traces what is not known yet.", no_args_is_help=True, rich_markup_mode=None
)
duration = typer.Typer(
    help="How long jobs will run: train, judge, show and apply models.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(duration, name="duration")
app.add_typer(degradation.app, name="degradation")
app.add_typer(arrivals.app, name="arrivals")

MANY: Final = 5_000
"""Jobs from which on a model may take a while."""

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        help="recall (ours), cart (the paper's), mean-per-user or last-run (naive).",
    ),
]
KeysOption = Annotated[
    str | None,
    typer.Option(
        "--keys",
        help="What a cart may look at: user, user+gpu, group+user, group+user+gpu or "
        "group+user+resource.",
        show_default="group+user+resource",
    ),
]

SHOWN: Final = {
    "within_25_percent": "within 25 %",
    "within_25_percent_of_instances": "of instances",
    "median_error_percent": "median error %",
    "mae_s": "MAE s",
    "pinball_s": "pinball s",
    "band_holds": "in P10-P90",
    "band_ratio": "P90/P10",
    "fallback": "fallback",
}
"""Figure -> its heading, in the order of the table."""


@duration.command()
def train(
    trace: TraceArgument,
    *,
    out: ModelOutOption,
    model: ModelOption = "recall",
    keys: KeysOption = None,
    fmt: FormatOption = None,
    skip_bad: SkipOption = False,
    data: DataOption = None,
) -> None:
    """Learn how long the jobs of a trace ran, and write what was learned to a file."""
    from interlane.predict.store import Model, save

    predictor = _made(model, keys)
    table, runs = _read(trace, fmt, data, skip_bad=skip_bad)
    with _told("Learning from", runs):
        predictor.fit(runs)
    digest = save(Model(predictor, _account(table, runs)), out)
    say(f"{out}: {model}, learned from {len(runs)} jobs, sha256 {digest[:16]}")
    say(f"A job never seen before is guessed to run {predictor.fallback_s:,.0f} s.")


@duration.command()
def evaluate(
    trace: TraceArgument,
    *,
    split: Annotated[
        str,
        typer.Option(
            help="How to part known from judged: time (the newest fifth is judged), or random "
            "(the paper's: a random fifth of groups with five runs or more)."
        ),
    ] = "time",
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="recall, cart; repeatable. The naive ones are always shown beside.",
            show_default="all",
        ),
    ] = None,
    keys: KeysOption = None,
    seed: SeedOption = 42,
    fmt: FormatOption = None,
    skip_bad: SkipOption = False,
    data: DataOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge how well models guess the jobs of a trace that they have not seen.

    Under "time", a model marked "learning" is told of every job when it ends.
    """
    from interlane.model import UnknownName
    from interlane.predict.catalogue import PREDICTORS
    from interlane.predict.evaluate import Split
    from interlane.predict.evaluate import evaluate as judge
    from interlane.predict.naive import NAIVE

    if split not in ("time", "random"):
        raise UnknownName("split", split, ("time", "random"))
    names = list(dict.fromkeys([*(model or PREDICTORS), *NAIVE]))
    models = {name: _made(name, keys) for name in names}
    table, runs = _read(trace, fmt, data, skip_bad=skip_bad)
    by_time = split == "time"
    parted = Split.by_time(runs) if by_time else Split.at_random(runs, seed)
    with _told("Judging models on", runs):
        found = judge(parted, models, learning=by_time)
    answer = {
        "trace": table.name,
        "split": split,
        "seed": None if by_time else seed,
        "learned_from": len(parted.known),
        "judged": int(parted.judged.sum()),
        "models": found,
    }
    rows = [
        [name, *(flat(_short(one[figure])) for figure in SHOWN)] for name, one in found.items()
    ]
    head = f"{table.name}: {answer['learned_from']} jobs learned, {answer['judged']} judged"
    emit(answer, output, f"{head}\n\n{grid(['model', *SHOWN.values()], rows)}")


@duration.command()
def show(model: ModelArgument, output: OutputOption = Output.TABLE) -> None:
    """Print what a model is: version, hash, what it learned from, and its fallback."""
    from interlane.predict.store import FORMAT, VERSION, load

    found = load(model)
    answer = {
        "model": found.name,
        "format": FORMAT,
        "version": VERSION,
        "sha256": found.sha256,
        "trained_on": dict(found.trained_on),
        "fallback_s": round(found.predictor.fallback_s, 3),
    }
    emit(answer, output)


@duration.command()
def apply(
    trace: TraceArgument,
    model: ModelArgument,
    *,
    out: Annotated[
        Path, typer.Option("--out", help="Where to write: .csv, .csv.gz, .parquet.")
    ],
    fmt: FormatOption = None,
    skip_bad: SkipOption = False,
    data: DataOption = None,
) -> None:
    """Write a trace with guesses: predicted_s, predicted_p10_s and predicted_p90_s.

    The new columns serve as --guess of simulate and compare.
    """
    from dataclasses import replace

    import polars as pl

    from interlane.predict.store import load
    from interlane.sim.learning import runs_of
    from interlane.traces.write import write_trace

    predictor = load(model).predictor
    table, _ = _read(trace, fmt, data, skip_bad=skip_bad)
    runs = runs_of(table)
    with _told("Guessing", runs):
        guesses = predictor.predict(runs)
    told = {
        "predicted_s": guesses.seconds,
        "predicted_p10_s": guesses.low_s,
        "predicted_p90_s": guesses.high_s,
    }
    job = table.frame["job_id"].rle_id()
    columns = [
        pl.Series(name, seconds[job.to_numpy()].round(3)) for name, seconds in told.items()
    ]
    write_trace(replace(table, frame=table.frame.with_columns(columns)), out)
    fallback = int((guesses.basis >= 4).sum())
    say(f"{out}: {len(guesses)} guesses, {fallback} of them for jobs of which nobody is known")


def _told(what: str, runs: "Runs") -> AbstractContextManager[None]:
    """Say what is going on if it takes long, which it cannot with a few jobs."""
    if len(runs) < MANY:
        return nullcontext()
    return saying_if_slow(f"{what} {len(runs):,} jobs...")


def _made(name: str, keys: str | None) -> "Predictor":
    from interlane.predict.catalogue import make_predictor

    return make_predictor(name, keys)


def _read(
    path: Path, fmt: str | None, data: Path | None, *, skip_bad: bool
) -> "tuple[Trace, Runs]":
    """Read a trace; say what is wrong with it and what its names do not tell."""
    from interlane import wiring
    from interlane.predict.runs import informative
    from interlane.sim.learning import runs_of

    trace = wiring.any_trace(path, fmt=fmt, skip_bad=skip_bad, data=data)
    if trace.bad_count:
        first = trace.bad[0]
        say(f"{path}: {trace.bad_count} bad rows left out, the first line {first.line}: "
            f"{first.what}")  # fmt: skip
    say_notes(path, trace)
    runs, notes = informative(runs_of(trace))
    for note in notes:
        say(note)
    return trace, runs


def _account(trace: "Trace", runs: "Runs") -> dict[str, object]:
    """Return what a model was trained on, for its file."""
    return {
        "trace": trace.name,
        "jobs": len(runs),
        "groups": len(set(runs.group) - {""}),
        "users": len(set(runs.user) - {""}),
        "first_submit_s": float(runs.submit_s.min()),
        "last_submit_s": float(runs.submit_s.max()),
    }


def _short(number: float) -> float:
    return round(number, 3) if abs(number) < 10 else round(number, 1)
