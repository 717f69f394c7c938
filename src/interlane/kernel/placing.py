"""Where the next job goes: asking the placer, checking what it says, and starting the job.

A placer that is a rule without randomness is carried out by compiled code, which picks the
next group and holds a place for its head in one call.  All others are asked, one job at a time.
"""

from dataclasses import replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from interlane.kernel import compiled, reasons
from interlane.kernel.closeness import Choices, Portion
from interlane.kernel.growth import Want
from interlane.kernel.queue import QueuedJob, WaitingJobs
from interlane.kernel.reservation import Reservation
from interlane.kernel.shapes import Shape
from interlane.kernel.state import State
from interlane.model import Action, Job, Placement, Refusal, Spot, Start, Tier
from interlane.policy.base import GangSpread, PlacementRule
from interlane.policy.place import RulePlacer
from interlane.policy.policy import Discipline
from interlane.tables import ANYBODY, AT_MACHINE, Table

Avoided = NDArray[np.bool_]


class Placing:
    """Finds places, and holds them where compiled code may."""

    def __init__(self, state: State, seed: int) -> None:
        self._state = state
        self._view = state.view
        self._ledger = state.ledger
        self._placer = placer = state.policy.placer
        self._rule = _rule_without_randomness(placer)
        """The placer's rule if the kernel may carry it out by itself."""
        self._exact = state.policy.discipline is Discipline.EASY
        """Whether room must be counted to the last: reservations look at single machines."""
        self._rng = Random(seed)
        """The placer's random numbers; nothing else draws from them."""

    def take_next(
        self, queue: WaitingJobs, now_s: float, *, only_with_room: bool
    ) -> tuple[int, Table | None, int]:
        """Pick the next group and hold a place for its head if a compiled rule finds one.

        Returns the group, what is held, and who may have room then (``ANYBODY``...).
        """
        if self._rule is None:
            return self.pick(queue, now_s, only_with_room=only_with_room), None, ANYBODY
        view, ledger = self._view, self._ledger
        rule, out = view.compiled_rule(self._rule), view.out
        ledger.make_way(len(out))
        if view.change_lists != ledger.change_lists:
            view.follow_change_list()
        number, count, ledger.changed, rest = compiled.start_next(
            queue.tables, ledger.tables, view.tables, rule.args, view.nowhere, out, now_s,
            self._state.epoch, only_with_room, self._exact,
        )  # fmt: skip
        return number, (out[:count].copy() if count else None), rest

    def pick(self, queue: WaitingJobs, now_s: float, *, only_with_room: bool) -> int:
        """Return the number of the next group, -1 if there is none."""
        view, ledger = self._view, self._ledger
        if view.change_lists != ledger.change_lists:
            view.follow_change_list()
        number: int = compiled.catch_up_and_pick(
            queue.tables, ledger.tables, view.tables, now_s, self._state.epoch, only_with_room,
            self._exact,
        )  # fmt: skip
        return number

    def try_start(self, entry: QueuedJob, now_s: float, actions: list[Action]) -> bool:
        """Start a job if the placer finds a place for it."""
        answer = self.place(entry)
        if isinstance(answer, Refusal):
            entry.refusal = answer
            return False
        return self.start_at(entry, answer, now_s, actions)

    def start_at(
        self, entry: QueuedJob, placement: Placement, now_s: float, actions: list[Action]
    ) -> bool:
        """Hold a placement and start the job there; the ledger, the referee, may say no."""
        table = self.hold(entry, placement)
        if table is None:
            entry.refusal = Refusal(
                Tier.INVALID,
                f"The placer {self._placer!r} proposed a placement that does not "
                "hold what was asked or does not fit.",
                "This is a fault of the placer; use another.",
            )
            return False
        self.start_on(entry, table, now_s, actions, placement)
        return True

    def start_on(
        self,
        entry: QueuedJob,
        table: Table,
        now_s: float,
        actions: list[Action],
        placement: Placement | None = None,
    ) -> None:
        """Start a job on rows that are held for it already."""
        if placement is None:
            placement = self._ledger.to_placement(table)
        self._state.dequeue(entry, now_s)
        self._state.hold(entry, placement, table, now_s)
        actions.append(Start(entry.job.id, placement))

    def hold(self, entry: QueuedJob, placement: Placement) -> Table | None:
        """Hold what a placer proposed; None if it does not fit or is not what was asked."""
        table = self._checked_rows(entry, placement)
        return table if table is not None and self._ledger.hold(table) else None

    def place(self, entry: QueuedJob, avoid: Avoided | None = None) -> Placement | Refusal:
        """Ask the placer for a place apart from some machines, as close as the job wants."""
        if not entry.shape.is_close:
            return self._ask(entry.job, entry.shape, avoid, planned=bool(entry.plan))
        held: list[int] = []
        if isinstance(entry, Want) and entry.of.rows is not None:
            held = entry.of.rows[:, AT_MACHINE].tolist()
        nowhere = self._view.nowhere if avoid is None else avoid
        for portions in Choices(entry.shape, self._view, self._ledger, nowhere, held):
            placement = self._place_portions(entry, portions)
            if placement is not None:
                return placement
        return self._view.why_not_now(entry.shape)

    def place_beside(
        self, entry: QueuedJob, promise: Reservation, *, is_short: bool
    ) -> Placement | None:
        """Return a placement that does not delay the job to which a place is promised."""
        if isinstance(self._placer, RulePlacer) and not is_short:
            apart = self.place(entry, promise.machines)
            if isinstance(apart, Placement):
                return apart
        answer = self.place(entry)
        if isinstance(answer, Refusal):
            return None
        table = self._checked_rows(entry, answer)
        if table is None or not (is_short or promise.spares(table)):
            return None
        return answer

    def _checked_rows(self, entry: QueuedJob, placement: Placement) -> Table | None:
        """Return a placement as rows if it places what the job asks for.

        Compiled rules place by count, so that their placements need no second count.
        """
        if isinstance(self._placer, RulePlacer):
            return self._ledger.to_rows(placement, entry.shape.profiles)
        if not reasons.covers(self._ledger, entry.job.request, placement, self._placer.types):
            return None
        # The view may have chosen it for another demand, so that its rows prove nothing.
        self._ledger.forget_proposal()
        return self._ledger.to_rows(placement, entry.shape.profiles)

    def _place_portions(
        self, entry: QueuedJob, portions: tuple[Portion, ...]
    ) -> Placement | None:
        """Return where all portions of a job go, or None if one of them has no place."""
        spots: list[Spot] = []
        for portion in portions:
            job, shape = entry.job, entry.shape
            if portion.request is not None:
                job = replace(job, request=portion.request)
                types = self._placer.types
                shape = self._view.staged_shape(portion.request, types, shape.stage)
            answer = self._ask(job, shape, portion.avoid, planned=bool(entry.plan))
            if isinstance(answer, Refusal) or self._strays(answer, portion.avoid):
                return None
            if portion.request is None:
                return answer
            spots += [replace(spot, task=portion.tasks[spot.task]) for spot in answer.spots]
        return Placement(tuple(spots))

    def _strays(self, placement: Placement, avoid: Avoided) -> bool:
        """Return whether a placer went to machines that it was not offered."""
        return any(
            not self._ledger.knows(machine) or avoid[self._ledger.number(machine)]
            for machine in placement.machines
        )

    def _ask(
        self, job: Job, shape: Shape, avoid: Avoided | None, *, planned: bool
    ) -> Placement | Refusal:
        """Ask the placer for a place apart from some machines."""
        placer = self._placer
        if not isinstance(placer, RulePlacer):
            view = self._view if avoid is None else self._view.without(avoid)
            return placer.place(job, view, self._rng)
        if avoid is None and not planned:
            return placer.place(job, self._view, self._rng)
        draws = placer.rule.spread is GangSpread.SAMPLE
        seed = self._rng.getrandbits(53) if draws else 0
        return self._view.choose_shape(shape, placer.rule, seed, avoid)


def _rule_without_randomness(placer: object) -> PlacementRule | None:
    if not isinstance(placer, RulePlacer) or placer.rule.spread is GangSpread.SAMPLE:
        return None
    return placer.rule
