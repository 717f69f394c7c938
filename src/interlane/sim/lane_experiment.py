"""Jobs, devices and rules by name: one run on devices with lanes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from interlane.lanes.domain import Domain
from interlane.lanes.memory import Budget
from interlane.lanes.order import make_order
from interlane.lanes.quantum import TurnRule
from interlane.lanes.sharing import (
    FilledSlowDown,
    Overlap,
    OverlapIfItPays,
    Serialise,
    Sharing,
)
from interlane.model import UnknownName
from interlane.sim.lanes import LaneJob, LaneRun, Physics, play


@dataclass(frozen=True, slots=True)
class LaneExperiment:
    """All that one run depends on."""

    jobs: Sequence[LaneJob]
    budget: Budget
    order: str = "fair"
    sharing: str = "turns"
    devices: int = 1
    physics: Physics = field(default_factory=Physics)

    def run(self) -> LaneRun:
        """Play the jobs; turns are long enough for the switches they cost."""
        if self.sharing not in SHARINGS:
            raise UnknownName("sharing", self.sharing, SHARINGS)
        domains = [
            Domain(
                self.budget,
                make_order(self.order),
                sharing=SHARINGS[self.sharing](self),
                turns=TurnRule(switch_cost_s=self.physics.switch_s),
            )
            for _ in range(self.devices)
        ]
        return play(self.jobs, domains, self.physics)


def _pays(experiment: LaneExperiment) -> Sharing:
    filled = {job.id: job.filled for job in experiment.jobs}
    return OverlapIfItPays(FilledSlowDown(filled, experiment.physics.contention))


SHARINGS: Final[Mapping[str, Callable[[LaneExperiment], Sharing]]] = MappingProxyType(
    {"turns": lambda _: Serialise(), "beside": lambda _: Overlap(), "auto": _pays}
)
"""In turns, beside each other while memory lasts, or beside only where that pays."""
