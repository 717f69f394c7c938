"""``interlane trace``: convert, describe and make traces."""

from pathlib import Path
from typing import Annotated

import typer

from interlane.cli.options import DataOption, FormatOption, SkipOption
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
    if trace.bad_count:
        typer.echo(f"{src}: {trace.jobs} jobs{_left_out(trace.bad_count)}", err=True)
        first = trace.bad[0]
        typer.echo(f"the first: {first.file}, line {first.line}: {first.what}", err=True)
    emit(describe_trace(trace), output)


@app.command()
def synth(
    dst: Annotated[Path, typer.Argument(help="Where to write: .csv, .csv.gz or .parquet.")],
    jobs: Annotated[int, typer.Option(help="How many jobs to make.")],
    cluster: Annotated[
        str, typer.Option(help="Cluster that the jobs must fit: a name or a file.")
    ] = "pai2020",
    load: Annotated[float, typer.Option(help="GPU time asked for, of what there is.")] = 0.9,
    days: Annotated[
        float | None, typer.Option(help="Days over which jobs arrive, instead of a load.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same trace.")] = 0,
    data: DataOption = None,
) -> None:
    """Make a trace that looks like PAI's and fits a cluster."""
    from interlane.traces.clusters import load_cluster
    from interlane.traces.data import data_dir
    from interlane.traces.synth import synthesize
    from interlane.traces.write import write_trace

    machines = load_cluster(cluster, data=data_dir(data))
    trace = synthesize(jobs=jobs, cluster=machines, load=load, seed=seed, days=days)
    write_trace(trace, dst)
    typer.echo(f"{dst}: {jobs} jobs for {cluster}, seed {seed}", err=True)


def _left_out(bad: int) -> str:
    return f", {bad} bad rows left out" if bad else ""
