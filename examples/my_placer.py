"""A placer in plain Python: spare the GPUs that others will need.

Jobs that accept any GPU go to ordinary ones first; those of the types in ``spare`` are used
last.  Among equals the machine with the least free GPU share wins, so that large holes stay
whole.  Run this file to play ``jobs.csv`` on ``lab.yaml`` with it:

    python my_placer.py
"""

from dataclasses import dataclass
from random import Random

import interlane as il
from interlane.model import Job, Placement, Refusal
from interlane.policy.base import ClusterView, TypeRule
from interlane.policy.sketch import Sketch, place_by


@dataclass(frozen=True, slots=True)
class Thrifty:
    """Use GPUs of the types in ``spare`` last, and the fullest machine first."""

    spare: str = "A100"
    """Types separated by ``|``."""
    types: TypeRule = TypeRule.EXACT

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Return where every instance goes, or why the job cannot be placed now."""
        return place_by(job, view, self._reluctance, self.types)

    def _reluctance(self, sketch: Sketch) -> tuple[bool, int]:
        return sketch.machine.gpu_type in self.spare.split("|"), sum(sketch.gpu_milli)


def main() -> None:
    """Play the example under a built-in placer and under this one."""
    for placer in ("balance", Thrifty):
        run = il.simulate("jobs.csv", "lab.yaml", placer=placer)
        print(f"{run.policy}: mean wait {run.summary['mean_wait_s']:,.0f} s")


if __name__ == "__main__":
    main()
