"""MIG plans and the way to them, for the page that shows both; runs away from the server."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from interlane.mig.documents import plan_document
from interlane.mig.plan import PartitionPlan
from interlane.usecases import mig, mig_transition
from interlane.usecases.documents import Document
from interlane.usecases.mig_transition import MigTransition


@dataclass(frozen=True, slots=True)
class PastedDemand:
    """What is asked for, as pasted."""

    services: str
    """YAML."""
    gpu: str | None
    table: str
    """CSV; empty if every model is synthetic."""
    current: str
    """JSON of what runs now; empty if nothing does."""
    limit_s: float


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the way to it from what runs now."""

    told: tuple[str, ...]
    """How good it is, in sentences."""
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """What every service asks for and gets."""
    plan: PartitionPlan
    actions: tuple[tuple[int, str], ...] | None
    """The way: what can be done at a time has the same number; None if nothing runs now."""

    @property
    def document(self) -> str:
        """The plan as JSON: what runs now, the next time."""
        return json.dumps({"gpus": plan_document(self.plan)}, indent=1)


def planned(wanted: PastedDemand) -> Planned:
    """Plan the fewest GPUs, or as few as leave most in place of what runs now."""
    demand = mig.MigDemand(
        Document("services", wanted.services),
        Document("the table", wanted.table) if wanted.table.strip() else None,
        wanted.gpu,
    )
    if not wanted.current.strip():
        found = mig.plan(demand, limit_s=wanted.limit_s)
        told = (f"{found.outcome.told}.", *found.outcome.notes)
        return Planned(told, *found.table, found.plan, None)
    current = Document("what runs now", wanted.current)
    way = mig_transition.transition(demand, current, limit_s=wanted.limit_s)
    return Planned(_told(way), *way.table, way.way.target, _numbered(way))


def _told(found: MigTransition) -> tuple[str, ...]:
    way = found.way
    return (
        f"{way.kept} of {way.running} running instances stay where they are.",
        f"{found.gpus} GPUs at the end, {found.fewest_gpus} would be the fewest; "
        f"{way.peak_gpus} on the way.",
    )


def _numbered(found: MigTransition) -> tuple[tuple[int, str], ...]:
    """Return the actions by the wave in which they can be carried out."""
    return tuple(
        (number, str(found.way.actions[at]))
        for number, wave in enumerate(found.waves, 1)
        for at in wave
    )
