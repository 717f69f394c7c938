"""``interlane trace``: convert, describe and make traces."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from interlane.cli.options import DataOption, FormatOption, SkipOption
from interlane.cli.output import OutputFormat, OutputOption, emit, say
from interlane.cli.progress import TERMINAL

app = typer.Typer(
    help="Convert, describe and make traces.", no_args_is_help=True, rich_markup_mode=None
)


SourceArgument = Annotated[
    Path, typer.Argument(help="Trace file, or a directory of PAI v2020 tables.")
]


@app.command()
def convert(
    src: SourceArgument,
    dst: Annotated[Path, typer.Argument(help="Where to write: .csv, .csv.gz or .parquet.")],
    fmt: FormatOption = None,
    *,
    skip_bad: SkipOption = False,
) -> None:
    """Convert a trace of any known format to interlane's own schema."""
    from interlane.usecases import traces

    found = traces.convert(src, dst, fmt=fmt, skip_bad=skip_bad, reporter=TERMINAL)
    say(f"{dst}: {found.jobs} jobs{_left_out(found.bad_rows)}")


@app.command()
def describe(
    src: SourceArgument,
    output: OutputOption = OutputFormat.TABLE,
    fmt: FormatOption = None,
    *,
    skip_bad: SkipOption = False,
) -> None:
    """Print what a trace holds: sizes, requests, durations, load, quality of estimates."""
    from interlane.usecases import traces

    found = traces.describe(src, fmt=fmt, skip_bad=skip_bad, reporter=TERMINAL)
    if found.bad_rows:
        say(f"{src}: {found.jobs} jobs{_left_out(found.bad_rows)}")
        say(f"the first: {found.first_bad}")
    emit(found.figures, output)


@app.command()
def synth(
    dst: Annotated[
        Path,
        typer.Argument(
            help="Where to write: .csv, .csv.gz or .parquet; with --like, a directory."
        ),
    ],
    jobs: Annotated[int | None, typer.Option(help="How many jobs to make.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Cluster that the jobs must fit: a name or a file.", show_default="pai2020"
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(help="GPU time asked for, of what there is.", show_default="0.9"),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="TRACE", help="Make all tables of a published trace: pai2020."),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            help="With --like: share of the published rate and machines.", show_default="1"
        ),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            help="Days over which jobs arrive; with --jobs, instead of a load.",
            show_default="61 with --like",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same trace.")] = 0,
    data: DataOption = None,
) -> None:
    """Make a trace: --jobs that fit a cluster, or all seven tables --like PAI's of 2020."""
    from interlane.model import InvalidInput
    from interlane.usecases import traces

    if like is not None:
        _refuse_with("--like", {"--jobs": jobs, "--cluster": cluster, "--load": load})
        rows = traces.synthesize_tables(
            dst, like=like, days=days, scale=scale, seed=seed, reporter=TERMINAL
        )
        say(
            f"{dst}: {rows.jobs} jobs, {rows.tasks} tasks and {rows.instances} instances of "
            f"{rows.users} users on {rows.machines} machines, seed {seed}"
        )
        return
    _refuse_with("--jobs", {"--scale": scale})
    if jobs is None:
        raise InvalidInput("Say what to make: --jobs N, or all tables with --like pai2020.")
    fits = cluster or "pai2020"
    traces.synthesize_jobs(
        dst,
        jobs,
        cluster=fits,
        load=load,
        days=days,
        seed=seed,
        data=data,
        reporter=TERMINAL,
    )
    say(f"{dst}: {jobs} jobs for {fits}, seed {seed}")


def _refuse_with(group: str, others: Mapping[str, object]) -> None:
    """Refuse options that mean nothing beside the one that was chosen."""
    from interlane.model import InvalidInput

    for name, value in others.items():
        if value is not None:
            raise InvalidInput(f"{name} means nothing with {group}; leave it out.")


def _left_out(bad: int) -> str:
    return f", {bad} bad rows left out" if bad else ""
