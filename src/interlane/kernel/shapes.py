"""Shapes: what a request becomes under one type rule, task by task.

Jobs of one shape either all fit or none does, so that the queue looks at one of them for all.
"""

from dataclasses import dataclass

from interlane.model import ANYWHERE, Refusal, Request
from interlane.policy.base import PlanStage

Domain = tuple[str, str]
"""A level of the topology, and one of its domains."""


@dataclass(frozen=True, slots=True)
class ShapePart:
    """One task of a shape: ``least`` to ``most`` units of a profile.

    A unit is one instance, or all that must share a machine.
    """

    profile: int
    least: int
    most: int
    instances_per_unit: int
    types: frozenset[str]
    """GPU types that the type rule holds the task to; empty means any."""


class Shape:
    """What all jobs with the same request have in common, in the same stage of a plan."""

    __slots__ = (
        "closeness", "generation", "grows", "instances", "is_close", "never", "parts",
        "profiles", "reclaims", "request", "stage", "within",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        parts: tuple[ShapePart, ...],
        stage: PlanStage | None = None,
        within: Domain | None = None,
    ) -> None:
        self.request = request
        self.stage = stage
        self.closeness = request.closeness
        self.within = within
        """The domain in which the job is already and must stay, where it grows."""
        self.is_close = within is not None or request.closeness != ANYWHERE
        """Whether it cares in which domains it is, so that placing it takes more than room."""
        self.reclaims = False
        """Whether borrowers of machines are stopped for it."""
        self.parts = parts
        self.profiles = tuple(part.profile for part in parts)
        self.instances = request.instances
        self.grows = request.grows
        self.never: Refusal | None = None
        """Why such a job can never run on this cluster, if so."""
        self.generation = -1
        """The machines by which ``never`` was judged."""
