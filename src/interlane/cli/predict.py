"""``interlane predict``: learn from traces what is not known yet."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from interlane.cli import arrivals, slowdown
from interlane.cli.options import (
    DataOption,
    FormatOption,
    ModelArgument,
    ModelOutOption,
    SeedOption,
    SkipOption,
    TraceArgument,
)
from interlane.cli.output import OutputFormat, OutputOption, emit, flat, grid, say
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.usecases.traces import TraceFile

app = typer.Typer(
    help="Learn from traces what is not known yet.", no_args_is_help=True, rich_markup_mode=None
)
duration = typer.Typer(
    help="How long jobs will run: train, judge, show and apply models.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(duration, name="duration")
app.add_typer(slowdown.app, name="slowdown")
app.add_typer(arrivals.app, name="arrivals")

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
    from interlane.usecases import durations

    source = _source(trace, fmt, data, skip_bad=skip_bad)
    found = durations.train(source, out, model=model, keys=keys, reporter=TERMINAL)
    say(f"{out}: {model}, learned from {found.jobs} jobs, sha256 {found.sha256[:16]}")
    say(f"A job never seen before is estimated to run {found.fallback_s:,.0f} s.")


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
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Judge how well models estimate the jobs of a trace that they have not seen.

    Under "time", a model marked "learning" is told of every job when it ends.
    """
    from interlane.usecases import durations

    found = durations.evaluate(
        _source(trace, fmt, data, skip_bad=skip_bad),
        split=split,
        models=model or (),
        keys=keys,
        seed=seed,
        reporter=TERMINAL,
    )
    rows = [
        [name, *(flat(_short(one[figure])) for figure in SHOWN)]
        for name, one in found.models.items()
    ]
    head = f"{found.trace}: {found.learned_from} jobs learned, {found.judged} judged"
    emit(asdict(found), output, f"{head}\n\n{grid(['model', *SHOWN.values()], rows)}")


@duration.command()
def show(model: ModelArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Print what a model is: version, hash, what it learned from, and its fallback."""
    from interlane.usecases import durations

    emit(asdict(durations.show(model)), output)


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
    """Write a trace with estimates: predicted_s, predicted_p10_s and predicted_p90_s.

    The new columns serve as --estimate of simulate and compare.
    """
    from interlane.usecases import durations

    source = _source(trace, fmt, data, skip_bad=skip_bad)
    found = durations.apply(source, model, out, reporter=TERMINAL)
    say(f"{out}: {found.estimates} estimates, {found.unknown} of them for jobs of which nobody "
        "is known")  # fmt: skip


def _source(path: Path, fmt: str | None, data: Path | None, *, skip_bad: bool) -> "TraceFile":
    from interlane.usecases.traces import TraceFile

    return TraceFile(path, fmt, skip_bad, data)


def _short(number: float) -> float:
    return round(number, 3) if abs(number) < 10 else round(number, 1)
