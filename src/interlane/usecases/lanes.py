"""What lanes would do with some jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from interlane.lanes.memory import Budget
from interlane.sim.lane_experiment import LaneExperiment
from interlane.sim.lane_figures import LaneFigures, figures_of
from interlane.sim.lane_jobs import read_lane_jobs
from interlane.sim.lanes import Physics
from interlane.usecases.reporter import SILENT, Reporter

MIB: Final = 1 << 20
FAIR: Final = "fair"


@dataclass(frozen=True, slots=True)
class SimulatedDevices:
    """Simulated devices, all alike."""

    count: int = 1
    memory_mib: int = 16_384
    context_mib: int = 0
    """Of each job's process."""
    switch_s: float = 0.001
    """Cost of passing a lane on."""
    contention: float = 0.0
    """Extra slowdown for each device that jobs want beyond the one there is."""


@dataclass(frozen=True, slots=True)
class SimulatedLanes:
    """What lanes did with the jobs."""

    figures: Mapping[str, LaneFigures]
    """By the order that decided whose turn it was."""


def simulate(
    jobs: Path,
    devices: SimulatedDevices,
    *,
    orders: Sequence[str] = (),
    sharing: str = "turns",
    skip_bad: bool = False,
    reporter: Reporter = SILENT,
) -> SimulatedLanes:
    """Play jobs on devices with lanes; return the figures of each order."""
    read, left_out = read_lane_jobs(jobs, skip_bad=skip_bad)
    if left_out:
        reporter.note(f"left out {left_out} bad rows")
    base = LaneExperiment(
        read,
        Budget(devices.memory_mib * MIB, devices.context_mib * MIB),
        sharing=sharing,
        devices=devices.count,
        physics=Physics(devices.switch_s, devices.contention),
    )
    figures = {name: _figures(replace(base, order=name), reporter) for name in orders or [FAIR]}
    return SimulatedLanes(figures)


def _figures(experiment: LaneExperiment, reporter: Reporter) -> LaneFigures:
    run = experiment.run()
    refused = [one for one in run.outcomes if one.refusal is not None]
    if refused:
        first = refused[0]
        reporter.note(f"refused: {len(refused)}, the first {first.job.id}: {first.refusal}")
    return figures_of(run, experiment.devices)
