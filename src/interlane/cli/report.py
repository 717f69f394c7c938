"""``interlane trace report``: what is in a trace, as a page, as JSON and as a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlane.cli.options import DataOption, FormatOption, TraceArgument
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.usecases.traces import TraceReport

KEY_NUMBERS = {
    "user_skew": ("top_5_percent_share",),
    "gangs": ("gang_share_of_instances", "gang_share_of_gpus"),
    "locality": ("tasks_naming_gpu_type",),
    "submissions": ("tasks_per_hour_least", "tasks_per_hour_most"),
    "run_times": ("p50", "p99"),
    "queueing": ("p90", "shared_p90", "whole_p90"),
    "requests": ("cpu_p50", "gpu_p50", "memory_p50"),
    "use": ("cpu_p50", "gpu_p50", "memory_p50"),
    "over_use": ("instances_over_cpu", "instances_over_gpu"),
    "machine_use": ("gpu_p90_8_gpu_machines", "gpu_p90_2_gpu_machines"),
    "network_io": ("iowait_orders_below",),
    "sharing": ("saved_mean",),
    "contention": ("busy", "busy_hosting_several"),
    "recurrence": ("run_5_times",),
    "workloads": ("nlp", "ctr"),
    "cpu_per_gpu": ("machines_all", "requests_all"),
    "allocation": ("misc_gpu", "v100_gpu"),
    "cpu_bottleneck": ("delayed_above_24_percent_cpu", "accelerated_above_24_percent_cpu"),
}
"""Figure -> the numbers of it that the table shows."""


def report(
    trace: TraceArgument,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="HTML", help="Write the page here.")
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="JSON", help="Write all numbers here."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    fmt: FormatOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Cluster of the trace, a name or a file: its machines, and its GPU types."
        ),
    ] = None,
    data: DataOption = None,
) -> None:
    """Say what a trace holds: plots on one page, and the paper's numbers beside its own.

    Bad rows and keys that do not join are counted, and columns that the trace lacks named.
    """
    from interlane.usecases import traces

    made = traces.report(trace, fmt=fmt, cluster=cluster, data=data, reporter=TERMINAL)
    if out is not None:
        out.write_text(made.page(), encoding="utf-8")
        figures, findings = len(made.report.figures), len(made.report.quality)
        say(f"{out}: {figures} figures, {findings} findings")
    if json_file is not None:
        import json

        json_file.write_text(json.dumps(made.document, indent=2) + "\n", encoding="utf-8")
        say(f"{json_file}: all numbers")
    emit(made.document, output, _table(made))


def _table(made: "TraceReport") -> str:
    report = made.report
    rows = [
        (figure.key, name, number.unit, _shown(number.value), _paper(number.paper))
        for figure in report.figures
        for name, number in figure.numbers.items()
        if name in KEY_NUMBERS.get(figure.key, ()) and number.value is not None
    ]
    lines = [grid(("figure", "number", "unit", "this trace", "paper"), rows, left=3)]
    if silent := [figure.key for figure in report.figures if not figure.numbers]:
        lines.append(f"not told by this trace: {', '.join(silent)}")
    lines += [
        f"quality: {one.table}: {one.what}: {one.rows:,} of {one.of:,}"
        for one in report.quality
    ]
    return "\n".join(lines)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _paper(value: float | None) -> str:
    return "" if value is None else f"{value:,g}"
