"""``interlane mig state`` and ``interlane mig cut``: the GPUs that are there."""

from typing import Annotated

import typer

from interlane.cli.output import OutputFormat, OutputOption, emit, grid
from interlane.cli.progress import TERMINAL

GpusOption = Annotated[
    str,
    typer.Option(
        "--gpus",
        metavar="nvidia|FOLDER",
        help="nvidia for those of this host; the --state of a server that emulates some.",
    ),
]


def state(gpus: GpusOption = "nvidia", output: OutputOption = OutputFormat.TABLE) -> None:
    """Show how GPUs are cut now; -o json is what `mig transition --from` reads."""
    from interlane.usecases import mig_gpus

    now = mig_gpus.state(gpus)
    head, rows = now.table
    emit(now.document, output, grid(head, rows, left=6) if rows else "There is no GPU.")


def cut(
    gpu: Annotated[str, typer.Argument(help="As `mig state` names it: gpu-0, or a UUID.")],
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PLACE]...", help="PROFILE@START, as in 3g.20gb@4."),
    ] = None,
    *,
    whole: Annotated[bool, typer.Option("--whole", help="Leave MIG mode.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.0, help="How long to wait for processes that hold it."
        ),
    ] = 0.0,
    gpus: GpusOption = "nvidia",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Cut one GPU into slices now, or make it whole again.

    Slices that are wanted and there stay as they are. Nothing is taken from a process: who
    holds what must change is waited for (--wait). If the driver refuses half-way, what was
    there before is made again. Where services run, `mig transition` and `mig apply` interrupt
    nobody.
    """
    from interlane.usecases import mig_gpus

    now = mig_gpus.cut(
        gpu, places or (), whole=whole, gpus=gpus, wait_s=wait, reporter=TERMINAL
    )
    head, rows = now.table
    emit(now.document, output, grid(head, rows, left=6))
