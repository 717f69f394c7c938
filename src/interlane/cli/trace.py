"""``interlane trace``: convert, describe and make traces."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Convert, describe and make traces.", no_args_is_help=True)


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


SourceArgument = Annotated[
    Path, typer.Argument(help="Trace file, or a directory of PAI v2020 tables.")
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Format of the source: interlane, pai-sim, pai2020, openb, philly or helios; "
        "told from the file unless given.",
    ),
]
SkipOption = Annotated[
    bool, typer.Option("--skip-bad", help="Leave bad rows out and count them.")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of published traces (or INTERLANE_DATA)."),
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
    output: Annotated[
        Output, typer.Option("-o", "--output", help="How to print.")
    ] = Output.TABLE,
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
    typer.echo(_printed(describe_trace(trace), output))


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


def _printed(answer: dict[str, object], output: Output) -> str:
    if output is Output.JSON:
        import json

        return json.dumps(answer, indent=2)
    if output is Output.YAML:
        import yaml

        return yaml.safe_dump(answer, sort_keys=False).rstrip()
    return "\n".join(_lines(answer))


def _lines(answer: dict[str, object]) -> list[str]:
    """Lay the answer out as aligned lines, one per number or per group of numbers."""
    width = max(len(name) for name in answer) + 2
    lines = []
    for name, value in answer.items():
        if isinstance(value, dict) and any(isinstance(one, dict) for one in value.values()):
            lines += [f"{name}:".ljust(width)]
            lines += [f"  {key}".ljust(width) + _flat(one) for key, one in value.items()]
        else:
            lines.append(name.ljust(width) + _flat(value))
    return lines


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{key} {_flat(one)}" for key, one in value.items()) or "-"
    if isinstance(value, float):
        return f"{value:,.10g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
