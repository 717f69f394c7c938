"""A whole policy: who goes first, where to, how strictly, and whether others make way."""

from dataclasses import dataclass, field
from enum import Enum
from math import inf

from interlane.policy.base import Order, Placer
from interlane.policy.preempt import Preemption


class Discipline(Enum):
    """What a job that does not fit does to those behind it."""

    SKIP = "skip"
    """Nothing: whoever fits starts, in order (greedy backfilling without reservation)."""
    STRICT = "strict"
    """Everything: nobody passes the head of the queue."""
    EASY = "easy"
    """It gets a reservation; others may pass unless they would delay it (EASY backfill)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """All choices that a scheduler is made of."""

    order: Order
    placer: Placer
    discipline: Discipline = Discipline.SKIP
    preemption: Preemption = field(default_factory=Preemption)
    name: str = ""
    passed_s_max: float = inf
    """Under EASY: once the head has waited so long as the head, nobody passes it on the word of
    an estimate, but only who leaves it all that it will need."""
