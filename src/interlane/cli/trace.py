"""``interlane trace``: convert, describe and make traces."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from interlane.cli.options import DataOption, FormatOption, SkipOption, say_notes
from interlane.cli.output import Output, OutputOption, emit

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
    from interlane.traces.read import read_trace
    from interlane.traces.write import write_trace

    trace = read_trace(src, fmt=fmt, skip_bad=skip_bad)
    say_notes(src, trace)
    write_trace(trace, dst)
    typer.echo(f"{dst}: {trace.jobs} jobs{_left_out(trace.bad_count)}", err=True)


@app.command()
def describe(
    src: SourceArgument,
    output: OutputOption = Output.TABLE,
    fmt: FormatOption = None,
    *,
    skip_bad: SkipOption = False,
) -> None:
    """Print what a trace holds: sizes, requests, durations, load, quality of guesses."""
    from interlane.traces.read import read_trace
    from interlane.traces.stats import describe as describe_trace

    trace = read_trace(src, fmt=fmt, skip_bad=skip_bad)
    say_notes(src, trace)
    if trace.bad_count:
        typer.echo(f"{src}: {trace.jobs} jobs{_left_out(trace.bad_count)}", err=True)
        first = trace.bad[0]
        typer.echo(f"the first: {first.file}, line {first.line}: {first.what}", err=True)
    emit(describe_trace(trace), output)


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
    given = {"--jobs": jobs, "--cluster": cluster, "--load": load}
    if like is None:
        _refuse_with("--jobs", {"--scale": scale})
        _synth_jobs(dst, jobs, cluster or "pai2020", load, days, seed, data)
    else:
        _refuse_with("--like", given)
        _synth_tables(dst, like, days, scale, seed)


def _refuse_with(group: str, others: Mapping[str, object]) -> None:
    """Refuse options that mean nothing beside the one that was chosen."""
    from interlane.model import InvalidInput

    for name, value in others.items():
        if value is not None:
            raise InvalidInput(f"{name} means nothing with {group}; leave it out.")


def _synth_jobs(
    dst: Path,
    jobs: int | None,
    cluster: str,
    load: float | None,
    days: float | None,
    seed: int,
    data: Path | None,
) -> None:
    from interlane.cli.progress import saying_if_slow
    from interlane.model import InvalidInput
    from interlane.traces.clusters import load_cluster
    from interlane.traces.data import data_dir
    from interlane.traces.synth import synthesize
    from interlane.traces.write import write_trace

    if jobs is None:
        raise InvalidInput("Say what to make: --jobs N, or all tables with --like pai2020.")
    machines = load_cluster(cluster, data=data_dir(data))
    wanted = 0.9 if load is None else load
    with saying_if_slow(f"Making {jobs:,} jobs..."):
        trace = synthesize(jobs=jobs, cluster=machines, load=wanted, seed=seed, days=days)
    with saying_if_slow(f"Writing {jobs:,} jobs to {dst}..."):
        write_trace(trace, dst)
    typer.echo(f"{dst}: {jobs} jobs for {cluster}, seed {seed}", err=True)


def _synth_tables(
    dst: Path, like: str, days: float | None, scale: float | None, seed: int
) -> None:
    from interlane.cli.progress import progress
    from interlane.model import UnknownName
    from interlane.traces.synth_pai import Scope, write_tables

    if like != "pai2020":
        raise UnknownName("published trace", like, ["pai2020"])
    scope = Scope(61.0 if days is None else days, 1.0 if scale is None else scale, seed)
    with progress("trace synth", 1, "instances") as tell:
        rows = write_tables(scope, dst, tell)
    typer.echo(
        f"{dst}: {rows.jobs} jobs, {rows.tasks} tasks and {rows.instances} instances of "
        f"{rows.users} users on {rows.machines} machines, seed {seed}",
        err=True,
    )


def _left_out(bad: int) -> str:
    return f", {bad} bad rows left out" if bad else ""
