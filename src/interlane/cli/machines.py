"""Machines of the live cluster: ``machines``, ``drain`` and ``undrain``."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from interlane.cli.client import ApiClient, ServerOptions
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, grid

Name = Annotated[str, typer.Argument(help="Machine, as `interlane machines` names it.")]


@takes(ServerOptions)
def machines(*, options: ServerOptions, output: OutputOption = OutputFormat.TABLE) -> None:
    """List machines: what they offer, who is there, and which are drained."""
    found = ApiClient(options).get("/machines").document()
    emit(found, output, _told(found["machines"]))


@takes(ServerOptions)
def drain(
    machine: Name, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Let a machine take nothing new; what runs there runs on."""
    found = ApiClient(options).put(_path(machine)).document()
    there = ", ".join(found["jobs"])
    runs = f"still running there: {there}" if there else "nothing runs there"
    emit(found, output, f"{found['name']} is drained; {runs}.")


@takes(ServerOptions)
def undrain(
    machine: Name, *, options: ServerOptions, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Let a machine take work again."""
    found = ApiClient(options).delete(_path(machine)).document()
    emit(found, output, f"{found['name']} takes work again.")


def _path(machine: str) -> str:
    return f"/machines/{quote(machine, safe='')}/drain"


def _told(found: list[dict[str, Any]]) -> str:
    head = ("machine", "state", "GPUs", "labels", "jobs", "cores", "memory MiB")
    rows = [
        (
            one["name"],
            "drained" if one["drained"] else "ready",
            _gpus(one["gpus"]),
            ", ".join(f"{key}={value}" for key, value in one["labels"].items()) or "-",
            ", ".join(one["jobs"]) or "-",
            f"{one['cpus']:g}",
            f"{one['memory_mib']:,}",
        )
        for one in found
    ]
    return grid(head, rows, left=5)


def _gpus(gpus: list[dict[str, Any]]) -> str:
    """Return GPUs by type, and those that are lost."""
    counts: dict[str, int] = {}
    for one in gpus:
        name = one["type"] if one["compute_milli"] else f"{one['type']} lost"
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "-"
