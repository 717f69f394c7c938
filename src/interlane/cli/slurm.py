"""``interlane slurm``: what a site of Slurm's installs, and what is missing."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from interlane.cli.client import StateOption, state_folder
from interlane.cli.output import OutputFormat, OutputOption, emit, grid

app = typer.Typer(
    help="Schedule the jobs of a Slurm cluster: what to install, and what is missing.",
    no_args_is_help=True,
)
SocketOption = Annotated[
    Path, typer.Option("--socket", help="The socket of the node's lanes daemon.")
]


@app.command()
def manifests(
    partition: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Partitions whose jobs are held, with commas."),
    ],
    state: StateOption = None,
    release: Annotated[
        int,
        typer.Option(
            metavar="SECONDS",
            min=30,
            help="Release what is held if the server gives no sign of life for so long.",
        ),
    ] = 600,
    gpus: Annotated[
        str,
        typer.Option(metavar="TYPE:NUMBER:MEMORY", help="The GPUs of a node."),
    ] = "a100:8:80GiB",
    command: Annotated[
        str, typer.Option(metavar="PATH", help="Where interlane is on controller and nodes.")
    ] = "/usr/local/bin/interlane",
    only: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Print this file alone.", show_default="all"),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the snippets, units and lines that a site installs, and how to remove them.

    Example: interlane slurm manifests --partition gpu --only job_submit.lua
    """
    from interlane.model.errors import UnknownName
    from interlane.wiring.slurm import slurm_manifests

    files = slurm_manifests(partition, state_folder(state), release, gpus, command)
    if only is not None:
        if only not in files:
            raise UnknownName("file", only, files)
        files = {only: files[only]}
    texts = [
        text if only is not None else f"==> {name} <==\n{text}" for name, text in files.items()
    ]
    emit(files, output, "\n".join(texts).rstrip("\n"))


@app.command()
def doctor(
    partition: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Partitions to schedule, with commas.")
    ] = None,
    state: StateOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Say what is there and what is missing for us to schedule a Slurm's jobs.

    Exit code 1 if not even --dry-run would work.  Example: interlane slurm doctor --partition
    gpu
    """
    from interlane.wiring.slurm import slurm_findings

    found = slurm_findings(state_folder(state), partition)
    rows = [
        (one.name, "yes" if one.holds else "no", one.here, "" if one.holds else one.follows)
        for one in found
    ]
    table = grid(("what", "", "here", "what follows"), rows, left=4)
    emit({"findings": [asdict(one) for one in found]}, output, table)
    return int(not all(one.holds for one in found if one.is_needed))


@app.command(hidden=True)
def join(socket: SocketOption) -> None:
    """Print the environment in which a task shares its GPU; for Slurm's task prolog."""
    from interlane.wiring.slurm import joined_lines

    for line in joined_lines(socket):
        typer.echo(line)


@app.command(hidden=True)
def admit(socket: SocketOption) -> None:
    """Let the user of a job speak to the lanes daemon; for Slurm's prolog."""
    from interlane.wiring.slurm import admit_job

    admit_job(socket)
