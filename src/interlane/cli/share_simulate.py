"""``interlane share simulate``: what would lanes do with these jobs."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlane.cli.options import LANE_ORDERS, SharingOption, SkipOption
from interlane.cli.output import OutputFormat, OutputOption, emit, grid
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.usecases.lanes import SimulatedLanes

HEAD = ("order", "makespan s", "mean JCT s", "p95 JCT s", "mean wait s", "switches", "busy %")


def simulate(
    jobs: Annotated[
        Path,
        typer.Argument(
            metavar="JOBS",
            help="Table of jobs: job_id, submit_s, iterations, iteration_ms, persistent_mib, "
            "ephemeral_mib; optional startup_s, filled (how much of the device a job keeps "
            "busy alone, from 0 to 1), priority, estimate_s, model.",
        ),
    ],
    order: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Whose turn it is: {LANE_ORDERS}; repeatable.",
            show_default="fair",
        ),
    ] = None,
    sharing: SharingOption = "turns",
    memory_mib: Annotated[
        int, typer.Option("--memory", metavar="MIB", min=1, help="Of each device.")
    ] = 16_384,
    context_mib: Annotated[
        int, typer.Option("--context", metavar="MIB", min=0, help="Of each job's process.")
    ] = 0,
    devices: Annotated[int, typer.Option(min=1, max=10_000, help="How many there are.")] = 1,
    switch_ms: Annotated[
        float, typer.Option("--switch", metavar="MS", min=0, help="Cost of passing a lane on.")
    ] = 1.0,
    contention: Annotated[
        float,
        typer.Option(
            min=0,
            help="Extra slowdown for each device that jobs want beyond the one there is.",
        ),
    ] = 0.0,
    skip_bad: SkipOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Play jobs on simulated devices with lanes and print the figures of each order."""
    from interlane.usecases import lanes

    found = lanes.simulate(
        jobs,
        lanes.SimulatedDevices(devices, memory_mib, context_mib, switch_ms / 1000, contention),
        orders=order or (),
        sharing=sharing,
        skip_bad=skip_bad,
        reporter=TERMINAL,
    )
    answer = {name: asdict(one) for name, one in found.figures.items()}
    emit(answer, output, _table(found))


def _table(found: "SimulatedLanes") -> str:
    rows = [
        [
            name,
            f"{one.makespan_s:,.1f}",
            f"{one.mean_jct_s:,.1f}",
            f"{one.p95_jct_s:,.1f}",
            f"{one.mean_wait_s:,.1f}",
            f"{one.switches:,}",
            f"{one.busy_percent:.1f}",
        ]
        for name, one in found.figures.items()
    ]
    return grid(HEAD, rows)
