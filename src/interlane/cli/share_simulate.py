"""``interlane share simulate``: what would lanes do with these jobs."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interlane.cli.options import LANE_ORDERS, SharingOption, SkipOption
from interlane.cli.output import Output, OutputOption, emit, grid, say

if TYPE_CHECKING:
    from interlane.sim.lane_experiment import LaneExperiment
    from interlane.sim.lane_figures import LaneFigures

MIB = 1 << 20


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
            help="Extra slow-down for each device that jobs want beyond the one there is.",
        ),
    ] = 0.0,
    skip_bad: SkipOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play jobs on simulated devices with lanes and print the figures of each order."""
    from interlane.lanes.memory import Budget
    from interlane.sim.lane_experiment import LaneExperiment
    from interlane.sim.lane_jobs import read_lane_jobs
    from interlane.sim.lanes import Physics

    read, left_out = read_lane_jobs(jobs, skip_bad=skip_bad)
    if left_out:
        say(f"left out {left_out} bad rows")
    base = LaneExperiment(
        read,
        Budget(memory_mib * MIB, context_mib * MIB),
        sharing=sharing,
        devices=devices,
        physics=Physics(switch_ms / 1000, contention),
    )
    found = {name: _figures(replace(base, order=name)) for name in order or [base.order]}
    emit({name: asdict(one) for name, one in found.items()}, output, _table(found))


def _figures(experiment: "LaneExperiment") -> "LaneFigures":
    from interlane.sim.lane_figures import figures_of

    run = experiment.run()
    refused = [one for one in run.outcomes if one.refusal is not None]
    if refused:
        say(f"refused: {len(refused)}, the first {refused[0].job.id}: {refused[0].refusal}")
    return figures_of(run, experiment.devices)


def _table(found: "Mapping[str, LaneFigures]") -> str:
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
        for name, one in found.items()
    ]
    return grid(HEAD, rows)
