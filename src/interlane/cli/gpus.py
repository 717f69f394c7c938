"""Devices of the live machine: ``gpus`` and ``top``."""

import sys
import time
from typing import Annotated, Any, Final

import typer

from interlane.cli.client import ApiClient, ServerOptions
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, harmless

BAR: Final = 20
MILLI: Final = 1000
MIB: Final = 1 << 20
CLEAR: Final = "\x1b[2J\x1b[H"


@takes(ServerOptions)
def gpus(*, options: ServerOptions, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show every device: what is held of it and by whom, and how much is used."""
    found = ApiClient(options).get("/gpus").document()
    emit(found, output, _gpus_told(found["gpus"]))


@takes(ServerOptions)
def top(
    *,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.2, help="Pause.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and leave.")] = False,
    options: ServerOptions,
) -> None:
    """Watch devices and the queue."""
    client = ApiClient(options)
    while True:
        told = _top_told(client)
        if once or not sys.stdout.isatty():
            typer.echo(harmless(told))
            return
        typer.echo(f"{CLEAR}{harmless(told)}")
        time.sleep(every)


def _top_told(client: ApiClient) -> str:
    summary = client.get("/summary").document()
    counts = "  ".join(f"{state} {count}" for state, count in summary["jobs"].items() if count)
    devices = client.get("/gpus").document()["gpus"]
    told = (
        f"policy {summary['policy']}\njobs   {counts or 'none'}\n\n{_gpus_told(devices)}\n\n"
        f"{_tenants_told(devices)}"
    )
    return told.rstrip()


def _gpus_told(devices: list[dict[str, Any]]) -> str:
    head = ("device", "type", "jobs", "held", "", "memory MiB", "busy", "used MiB")
    rows = [
        (
            f"{device['machine']}:{device['gpu']}",
            _type_told(device),
            ", ".join(job["id"] for job in device["jobs"]) or "-",
            _bar(device["held_milli"]),
            f"{device['held_milli'] / 10:.0f} %",
            f"{device['held_memory_mib']:,} of {device['memory_mib']:,}",
            "-" if device["busy"] is None else f"{device['busy']:.0%}",
            f"{device['used_bytes'] / MIB:,.0f}" if device["is_shared"] else "-",
        )
        for device in devices
    ]
    return grid(head, rows, left=4)


def _type_told(device: dict[str, Any]) -> str:
    kind: str = device["type"].lower()
    return f"{kind} (emulated)" if device["emulated"] and kind != "emulated" else kind


def _tenants_told(devices: list[dict[str, Any]]) -> str:
    """Return a row for every job on a device: its lane, and how it gets on."""
    head = (
        *("device", "lane", "job", "state", "iterations", "busy s", "waited s"),
        *("slowdown", "predicted"),
    )
    rows = [
        (
            f"{device['machine']}:{device['gpu']}",
            "-" if job["lane"] is None else str(job["lane"]),
            job["id"],
            job["state"],
            *_use_told(job["use"]),
        )
        for device in devices
        for job in device["jobs"]
    ]
    return grid(head, rows, left=4) if rows else ""


def _use_told(use: dict[str, Any] | None) -> tuple[str, ...]:
    if use is None:
        return ("-",) * 5
    slower = (use["measured_slowdown"], use["predicted_slowdown"])
    return (
        f"{use['iterations']:,}",
        f"{use['busy_s']:,.1f}",
        f"{use['waited_s']:,.1f}",
        *("-" if one is None else f"{one:.2f}" for one in slower),
    )


def _bar(milli: int) -> str:
    full = round(BAR * milli / MILLI)
    return "#" * full + "." * (BAR - full)
