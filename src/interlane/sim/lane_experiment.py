"""Jobs, devices and rules by name: one run on devices with lanes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from interlane.lanes.domain import Domain
from interlane.lanes.memory import Budget
from interlane.lanes.order import make_order
from interlane.lanes.quantum import TurnRule
from interlane.lanes.sharing import FilledSlowDown, make_sharing
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
        filled = {job.id: job.filled for job in self.jobs}
        slow_down = FilledSlowDown(filled, self.physics.contention)
        domains = [
            Domain(
                self.budget,
                make_order(self.order),
                sharing=make_sharing(self.sharing, slow_down),
                turns=TurnRule(switch_cost_s=self.physics.switch_s),
            )
            for _ in range(self.devices)
        ]
        return play(self.jobs, domains, self.physics)
