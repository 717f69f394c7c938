"""Devices of the live machine: ``gpus`` and ``top``."""

import sys
import time
from typing import Annotated, Any, Final

import typer

from interlane.cli.client import Client, ServerOptions
from interlane.cli.options import takes
from interlane.cli.output import Output, OutputOption, emit, grid

BAR: Final = 20
MILLI: Final = 1000
CLEAR: Final = "\x1b[2J\x1b[H"


@takes(ServerOptions)
def gpus(*, options: ServerOptions, output: OutputOption = Output.TABLE) -> None:
    """Show every device: what is held of it, and by whom."""
    found = Client(options).get("/gpus").document()
    emit(found, output, _gpus_told(found["gpus"]))


@takes(ServerOptions)
def top(
    *,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.2, help="Pause.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and leave.")] = False,
    options: ServerOptions,
) -> None:
    """Watch devices and the queue."""
    client = Client(options)
    while True:
        told = _top_told(client)
        if once or not sys.stdout.isatty():
            typer.echo(told)
            return
        typer.echo(f"{CLEAR}{told}")
        time.sleep(every)


def _top_told(client: Client) -> str:
    summary = client.get("/summary").document()
    counts = "  ".join(f"{state} {count}" for state, count in summary["jobs"].items() if count)
    devices = _gpus_told(client.get("/gpus").document()["gpus"])
    return f"policy {summary['policy']}\njobs   {counts or 'none'}\n{devices}"


def _gpus_told(devices: list[dict[str, Any]]) -> str:
    head = ("device", "type", "jobs", "held", "", "memory MiB")
    rows = [
        (
            f"{device['machine']}:{device['gpu']}",
            device["type"].lower(),
            ", ".join(job["id"] for job in device["jobs"]) or "-",
            _bar(device["held_milli"]),
            f"{device['held_milli'] / 10:.0f} %",
            f"{device['held_memory_mib']:,} of {device['memory_mib']:,}",
        )
        for device in devices
    ]
    return grid(head, rows, left=4)


def _bar(milli: int) -> str:
    full = round(BAR * milli / MILLI)
    return "#" * full + "." * (BAR - full)
