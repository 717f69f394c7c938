"""The read-only picture that placers see: questions in, answers out.

Behind it stands the room index: per profile, how many units every machine could take and how
good each machine is.  A profile is a demand under a type rule; a *shape* is what a request
becomes under one type rule: a profile with counts for each of its tasks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlane import tables
from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger
from interlane.kernel.reasons import explain_shortage, explain_waiting, in_stage
from interlane.kernel.shapes import Domain, Shape, ShapePart
from interlane.model import Demand, Job, MachineId, Placement, Refusal, Request, Task
from interlane.policy import scores as prices
from interlane.policy.base import BlendTerms, FreeMachine, PlacementRule, PlanStage, TypeRule
from interlane.policy.scores import Score, knowledge
from interlane.tables import RuleArgs, Table, typical_rows
from interlane.tables.compiled import change_rows, slots_of


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule as compiled code takes it."""

    rule: PlacementRule
    args: tuple[Any, ...]
    """In the order of ``tables.RuleArgs``."""
    shapes: dict[Request, Shape]
    """Shapes under the rule's type rule; shared with the view."""


class LedgerView:
    """Implements ``policy.base.ClusterView`` on top of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._numbers: dict[tuple[Demand, frozenset[str], int], int] = {}
        self._shapes: dict[TypeRule, dict[Request, Shape]] = {rule: {} for rule in TypeRule}
        self._every_type = ledger.types.seen
        self._staged: dict[
            tuple[Request, TypeRule, PlanStage | None, Domain | None], Shape
        ] = {}
        self._compiled: CompiledRule | None = None
        self.cursors = np.full((0, tables.CURSORS), -1, np.int64)
        self.sums = np.zeros(0, np.int64)
        """Sum of each row of ``rooms``."""
        self._begin_index(0)
        self.change_lists = ledger.change_lists
        self.out: Table = np.empty((64, tables.AT_WIDTH), np.int64)
        """Where compiled code writes a placement: as long as the largest request needs."""
        self.random = np.zeros(1, np.uint64)
        """The state of the random numbers that a rule draws."""
        self._grow()

    # -- questions of placers ---------------------------------------------------------

    def room(self, task: Task, types: TypeRule = TypeRule.EXACT) -> int:
        """Return how many instances of the task would fit now, over all machines."""
        part = self.part(task, types)
        self.catch_up(part.profile)
        return int(self.sums[part.profile]) * part.instances_per_unit

    def candidates(self, task: Task, types: TypeRule = TypeRule.EXACT) -> Iterator[int]:
        """Yield the machines that could take an instance now, in cluster order."""
        profile = self.part(task, types).profile
        self.catch_up(profile)
        yield from np.nonzero(self.rooms[profile])[0].tolist()

    def number(self, machine_id: MachineId) -> int:
        """Return the number by which ``free`` knows a machine."""
        return self._ledger.number(machine_id)

    def free(self, machine: int) -> FreeMachine:
        """Return what one machine has left."""
        row = self._ledger.free[machine].tolist()
        slots = slots_of(self._ledger.free)
        gpus = row[tables.GPUS]
        at = self._ledger.machine(machine)
        return FreeMachine(
            index=machine,
            id=at.id,
            gpu_type=at.gpu_type,
            cpu_milli=max(row[tables.CPU], 0),
            memory_mib=max(row[tables.MEMORY], 0),
            gpu_milli=_at_least_0(row[tables.FREE : tables.FREE + gpus]),
            gpu_memory_mib=_at_least_0(row[tables.FREE + slots : tables.FREE + slots + gpus]),
            pooled=at.pooled,
            gpu_types=tuple(at.device(number).type for number in range(gpus)),
        )

    def without(self, avoid: NDArray[np.bool_]) -> "Without":
        """Return a view in which some machines are not there."""
        return Without(self, avoid)

    def only(self, machine_ids: Iterable[MachineId]) -> "Without":
        """Return a view in which there are no machines but these."""
        avoid = np.ones(len(self._ledger.free), np.bool_)
        avoid[[self._ledger.number(one) for one in machine_ids]] = False
        return Without(self, avoid)

    def choose(self, job: Job, rule: PlacementRule, seed: int = 0) -> Placement | Refusal:
        """Return the placement that a compiled rule chooses, or why there is none."""
        return self.choose_avoiding(job, rule, seed, None)

    def why_not(self, job: Job, types: TypeRule = TypeRule.EXACT) -> Refusal:
        """Return why the job does not fit now."""
        return self.why_not_now(self.shape(job.request, types))

    def why_not_now(self, shape: Shape) -> Refusal:
        """Return why a shape, which may be that of a stage, does not fit now."""
        never = self.never(shape)
        if never is not None:
            return never
        refusal = explain_waiting(self._ledger, shape)
        return refusal if shape.stage is None else in_stage(refusal, shape.stage)

    # -- for the kernel ---------------------------------------------------------------

    def compiled_rule(self, rule: PlacementRule) -> CompiledRule:
        """Return a rule as compiled code takes it."""
        settings = self._compiled
        if settings is None or settings.rule is not rule:
            settings = self._compile(rule)
        return settings

    def choose_avoiding(
        self, job: Job, rule: PlacementRule, seed: int, avoid: NDArray[np.bool_] | None
    ) -> Placement | Refusal:
        """Choose as ``choose`` does, on machines that are not to be avoided."""
        settings = self.compiled_rule(rule)
        shape = settings.shapes.get(job.request) or self.shape(job.request, rule.types)
        return self.choose_shape(shape, rule, seed, avoid)

    def choose_shape(
        self,
        shape: Shape,
        rule: PlacementRule,
        seed: int,
        avoid: NDArray[np.bool_] | None = None,
    ) -> Placement | Refusal:
        """Choose for a shape, which may be that of a stage."""
        settings = self.compiled_rule(rule)
        never = self.never(shape)
        if never is not None:
            return never
        table = self._choose_rows(
            shape, settings, seed, self.nowhere if avoid is None else avoid
        )
        if table is None:
            return self.why_not_now(shape)
        return self._ledger.to_placement(table)

    def shapes(self, types: TypeRule) -> dict[Request, Shape]:
        """Return the shapes known so far under a type rule; not for changing."""
        return self._shapes[types]

    def shape(self, request: Request, types: TypeRule) -> Shape:
        """Return what the request becomes under a type rule."""
        shape = self._shapes[types].get(request)
        if shape is None:
            parts = tuple(self.part(task, types) for task in request.tasks)
            shape = self._shapes[types][request] = Shape(request, parts)
            self.never(shape)
        return shape

    def never(self, shape: Shape) -> Refusal | None:
        """Return why a shape does not fit on the machines that are known now, if so."""
        if shape.generation != self._ledger.generation:
            shape.generation = self._ledger.generation
            shape.never = explain_shortage(self._ledger, shape)
            if shape.never is None:
                self.make_room_for(shape)
        return shape.never

    def make_room_for(self, shape: Shape) -> None:
        """Have a placement of the shape fit into ``out``."""
        if shape.instances > len(self.out):
            self.out = np.empty((2 * shape.instances, tables.AT_WIDTH), np.int64)

    def staged_shape(
        self,
        request: Request,
        types: TypeRule,
        stage: PlanStage | None,
        within: Domain | None = None,
    ) -> Shape:
        """Return what the request becomes in one stage of a plan, or in one domain."""
        key = request, types, stage, within
        shape = self._staged.get(key)
        if shape is None:
            parts = tuple(self.part(task, types, stage) for task in request.tasks)
            shape = self._staged[key] = Shape(request, parts, stage, within)
            self.never(shape)
        return shape

    def domain_of(self, level: str, machine: int) -> str:
        """Return the domain that a machine is in; empty if in none."""
        domains = self._ledger.domains(level)
        at = int(domains.of[machine])
        return domains.names[at] if at >= 0 else ""

    def room_of(self, profile: int) -> NDArray[np.int32]:
        """Return how many units of a profile each machine could take now."""
        self.catch_up(profile)
        room: NDArray[np.int32] = self.rooms[profile]
        return room

    def catch_up(self, profile: int) -> None:
        """Bring one profile's room up to date."""
        self.follow_change_list()
        compiled.catch_up_room(profile, self._ledger.tables, self.tables)

    def follow_change_list(self) -> None:
        """Start over when the ledger has begun a new change list."""
        if self.change_lists != self._ledger.change_lists:
            self.change_lists = self._ledger.change_lists
            self.cursors[:] = -1
            if self.rooms.shape[1] != self._ledger.height:
                self._begin_index(len(self.cursors))

    def follow_machines(self) -> None:
        """Take in that machines joined, changed or left."""
        if self._ledger.types.seen != self._every_type:
            # Masks of types are made of those that are known: stages and rules are made anew.
            self._every_type = self._ledger.types.seen
            self._staged.clear()
            self._compiled = None
            self.cursors[:, tables.SCORE_CURSOR] = -1

    # -- inside -----------------------------------------------------------------------

    def part(self, task: Task, types: TypeRule, stage: PlanStage | None = None) -> ShapePart:
        """Return what a task becomes under a type rule."""
        together = task.least if task.same_machine else 1
        bare = task.demand.gpus == 0
        binding = frozenset() if bare else types.binding(task.demand)
        if stage is not None:
            binding = stage.binding(binding, self._every_type, bare=bare)
        key = task.demand, binding, together
        profile = self._numbers.get(key)
        if profile is None:
            profile = self._numbers[key] = self._ledger.add_ask(*key)
            self._grow()
        if task.same_machine:
            return ShapePart(profile, 1, 1, together, binding)
        return ShapePart(profile, task.least, task.instances, 1, binding)

    def _begin_index(self, profiles: int) -> None:
        """Begin with an empty index, as wide as there are machines."""
        machines = self._ledger.height
        self.rooms: NDArray[np.int32] = np.zeros((profiles, machines), np.int32)
        """Units of each profile that each machine could take, as of the profile's cursor."""
        self.scores = np.zeros((profiles, machines), np.float64)
        """Scores as of the profile's second cursor, under the rule last asked for."""
        self.nowhere = np.zeros(machines, np.bool_)
        """No machine to be avoided."""
        self._name_tables()

    def _name_tables(self) -> None:
        """Say which tables the room index has; to be called whenever one is replaced."""
        self.tables: tuple[Any, ...] = self.cursors, self.rooms, self.sums, self.scores
        """The room index in the order of ``tables.RoomIndex``."""

    def _grow(self) -> None:
        """Keep the index as long as the ledger's list of asks."""
        length, new = len(self.cursors), len(self._ledger.asks)
        if new == length:
            return
        more, machines = new - length, self.rooms.shape[1]
        self.cursors = np.concatenate(
            [self.cursors, np.full((more, tables.CURSORS), -1, np.int64)]
        )
        self.rooms = np.concatenate([self.rooms, np.zeros((more, machines), np.int32)])
        self.sums = np.concatenate([self.sums, np.zeros(more, np.int64)])
        self.scores = np.concatenate([self.scores, np.zeros((more, machines), np.float64)])
        self._name_tables()

    def _compile(self, rule: PlacementRule) -> CompiledRule:
        if self._compiled is not None and self._compiled.rule != rule:
            self.cursors[:, tables.SCORE_CURSOR] = -1
        demands = [kind.demand for kind in rule.typical]
        typical = typical_rows(demands, self._ledger.types.mask)
        weights = np.array([kind.weight for kind in rule.typical], np.float64)
        if rule.score is Score.BLEND:
            weights = self._prices(rule.terms)
        args = RuleArgs(
            int(rule.score),
            int(rule.spread),
            int(rule.gpu_choice),
            rule.choices,
            typical,
            knowledge(rule.score, typical, weights),
            self.random,
        )
        self._compiled = CompiledRule(rule, tuple(args), self._shapes[rule.types])
        return self._compiled

    def _prices(self, terms: BlendTerms) -> NDArray[np.float64]:
        """Return the terms of a blend as compiled code takes them."""
        weights = np.zeros(prices.BLEND_WIDTH, np.float64)
        weights[: prices.BLEND_DEAR] = (
            terms.tight,
            terms.fill,
            terms.balance,
            terms.match,
            terms.contention,
            terms.cores_per_gpu,
        )
        types = self._ledger.types
        for gpu_type, price in terms.dear:
            for bit in types.bits(gpu_type):
                weights[prices.BLEND_DEAR + bit] = price
        for gpu_type, price in terms.level:
            for bit in types.bits(gpu_type):
                weights[prices.BLEND_LEVEL + bit] = price
        return weights

    def _choose_rows(
        self, shape: Shape, rule: CompiledRule, seed: int, avoid: NDArray[np.bool_]
    ) -> Table | None:
        self.random[0] = seed
        if self.change_lists != self._ledger.change_lists:
            self.follow_change_list()
        if len(shape.parts) > 1:
            return self._choose_parts(shape, rule, avoid)
        part = shape.parts[0]
        wanted = part.profile, 0, part.least, part.most
        count = compiled.choose_task(
            rule.args, wanted, self._ledger.tables, self.tables, avoid, self.out
        )
        return None if count < 0 else self.out[:count].copy()

    def _choose_parts(
        self, shape: Shape, rule: CompiledRule, avoid: NDArray[np.bool_]
    ) -> Table | None:
        """Choose for several tasks, each seeing what the ones before it took; then undo."""
        ledger, end = self._ledger, 0
        for task, part in enumerate(shape.parts):
            self.follow_change_list()
            wanted = part.profile, task, part.least, part.most
            count = compiled.place_task(
                rule.args, wanted, ledger.tables, self.tables, avoid, self.out, end
            )
            if count < 0:
                break
            ledger.note_changes(self.out[end:count])
            end = count
        change_rows(ledger.free, ledger.asks, self.out, 0, end, -1)
        ledger.note_changes(self.out[:end])
        return None if count < 0 else self.out[:end].copy()


class Without:
    """A view in which some machines are not there, for placers that no rule expresses."""

    def __init__(self, view: LedgerView, avoid: NDArray[np.bool_]) -> None:
        self._view = view
        self._avoid = avoid

    def room(self, task: Task, types: TypeRule = TypeRule.EXACT) -> int:
        """Return how many instances of the task would fit now, over all machines."""
        part = self._view.part(task, types)
        room = self._view.room_of(part.profile)[~self._avoid]
        return int(room.sum()) * part.instances_per_unit

    def candidates(self, task: Task, types: TypeRule = TypeRule.EXACT) -> Iterator[int]:
        """Yield the machines that could take an instance now, in cluster order."""
        return (at for at in self._view.candidates(task, types) if not self._avoid[at])

    def free(self, machine: int) -> FreeMachine:
        """Return what one machine has left."""
        return self._view.free(machine)

    def choose(self, job: Job, rule: PlacementRule, seed: int = 0) -> Placement | Refusal:
        """Return the placement that a compiled rule chooses, or why there is none."""
        return self._view.choose_avoiding(job, rule, seed, self._avoid)

    def why_not(self, job: Job, types: TypeRule = TypeRule.EXACT) -> Refusal:
        """Return why the job does not fit now."""
        return self._view.why_not(job, types)


def _at_least_0(amounts: list[int]) -> tuple[int, ...]:
    """Return what can be had where others may have taken more than was free."""
    return tuple(max(amount, 0) for amount in amounts)
