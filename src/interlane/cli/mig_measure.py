"""``interlane mig measure``: how fast a handler is on slices of every size."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.usecases.mig_measure import MeasuredHandler


WhereOption = Annotated[
    str,
    typer.Option(
        help="mig:A100-40GB:4 for slices of one of 4 emulated GPUs; nvidia:gpu-0 for a GPU of "
        "this host, which nothing may use meanwhile."
    ),
]


def measure(
    handler: Annotated[
        str, typer.Argument(metavar="HANDLER", help="As functions name it: module:function.")
    ],
    table: Annotated[
        Path,
        typer.Option("--table", help="Performance table to fill, and to go on with (CSV)."),
    ],
    payload: Annotated[
        str, typer.Option("--input", metavar="JSON", help="What every call is asked.")
    ] = "null",
    load: Annotated[
        str | None,
        typer.Option(
            metavar="module:function",
            help="Makes what the handler gets first, as of functions.",
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        Path, typer.Option(help="Folder in which modules are looked for.")
    ] = Path(),
    name: Annotated[
        str | None,
        typer.Option(help="What services call the model.", show_default="the function's name"),
    ] = None,
    devices: WhereOption = "mig:A100-40GB:1",
    profile: Annotated[
        list[str] | None,
        typer.Option(help="Size to measure; repeatable.", show_default="all plain ones"),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="N,N...",
            help="Batch sizes: the handler takes a list, and returns one.",
            show_default="no batches",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long each size and batch is timed.")
    ] = 3.0,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Time a handler on slices of each size, and fill the table that `mig plan` reads.

    What the table has is not measured again, so an interrupted run goes on where it was. Sizes
    between two that were measured are interpolated and marked so; what does not run, for want
    of memory or because it raises, is named and left out.
    """
    from interlane.usecases import mig_measure

    work = mig_measure.HandlerWork(
        handler, load, str(path.absolute()), _json(payload), batch is not None, seconds
    )
    found = mig_measure.measure(
        work,
        name or handler.rpartition(":")[2],
        table,
        mig_measure.target_of(devices),
        profiles=profile or (),
        batches=_numbers(batch),
        reporter=TERMINAL,
    )
    for failure in found.failures:
        say(f"Not measured: {failure}")
    emit(found.document, output, _told(found))


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise typer.BadParameter(f"{text!r} is no JSON", param_hint="--input") from None


def _numbers(text: str | None) -> list[int]:
    parts = ["1"] if text is None else text.split(",")
    if not all(one.strip().isdigit() and len(one.strip()) < 8 for one in parts):
        raise typer.BadParameter("batches read like 1,4,16", param_hint="--batch")
    return [int(one) for one in parts]


def _told(found: "MeasuredHandler") -> str:
    rows = [
        [
            row.profile,
            str(row.batch),
            f"{row.throughput_per_s:,.4g}",
            f"{row.latency_ms:,.4g}",
            "interpolated" if row.interpolated else "measured",
        ]
        for row in found.rows
    ]
    head = ["profile", "batch", "per s", "ms", "source"]
    where = " on emulated slices" if found.emulated else ""
    return f"{grid(head, rows, left=1)}\n\n{found.new} measured{where}; all in {found.table}."
