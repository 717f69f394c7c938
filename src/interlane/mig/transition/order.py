"""The way: an order of actions on which no service falls below its floor.

The order is found by playing it.  Slots of the plan whose units are free are made and filled at
once; that only adds throughput.  Where running instances stand in the way of a slot, they are
drained as soon as their services have throughput to spare.  New instances of one profile are
interchangeable, so which service gets a free slot is decided at that moment: the one that waits
most urgently for throughput, because its old instances stand in others' way.

When nothing can move, room is made: a temporary instance is started where the plan wants
nothing, so that one that stands in the way can go.  If there is no such place, a GPU is
borrowed.  Every time, an instance that must go goes, so this comes to an end; and a way
without borrowed GPUs is searched for with other choices before one with them is accepted.

From the order follows what really must wait for what.  For one service, number its starts
and its drains as they come.  A drain waits for the fewest first starts with which the floor
holds if all drains up to it are over.  Then the floor holds however actions overlap: of all
drains that have begun take the last in this count; its starts are over, and no more drains
than those before it have begun.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Final, NamedTuple

from interlane.mig.covering import free_names, instance_of
from interlane.mig.demand import Problem
from interlane.mig.layouts import SlicePlace, broken_rule
from interlane.mig.plan import Instance, PartitionPlan
from interlane.mig.profiles import gpu_model
from interlane.mig.transition.steps import Action, StepKind, Transition, TransitionStep, Verb

TRIES: Final = 12
"""Ways that are tried before borrowing more GPUs than need be proven."""

_SLACK: Final = 1e-9
"""Share of a floor by which sums of floating-point numbers may fall short."""


class PlannedAction(NamedTuple):
    """One entry of the log of a way: a repartition, or a service created or deleted."""

    kind: StepKind
    gpu: str
    instance: Instance | None = None
    destroyed: tuple[SlicePlace, ...] = ()
    made: tuple[SlicePlace, ...] = ()


@dataclass(frozen=True, slots=True)
class PlayedWay:
    """A way as it was played."""

    log: tuple[PlannedAction, ...]
    models: Mapping[str, str]
    """Of every GPU on the way."""
    reached: PartitionPlan
    borrowed: tuple[str, ...]

    @property
    def cost(self) -> tuple[int, int]:
        """GPUs borrowed first, then what there is to do."""
        return len(self.borrowed), len(self.log)


def ordered(
    current: PartitionPlan,
    target: PartitionPlan,
    floors: Mapping[str, float],
    problem: Problem,
    *,
    exact: bool = False,
    frozen: Collection[str] = (),
    seed: int = 0,
) -> Transition:
    """Return a way from what runs now to a plan.

    Services may change places between new instances of one profile, unless the plan is meant
    to the letter (``exact``).  GPUs that are ``frozen`` must be in the plan as they are.
    """
    best = played(current, target, floors, problem, exact=exact, frozen=frozen, seed=seed)
    return way_of(current, best, floors)


def played(
    current: PartitionPlan,
    target: PartitionPlan,
    floors: Mapping[str, float],
    problem: Problem,
    *,
    exact: bool = False,
    frozen: Collection[str] = (),
    seed: int = 0,
) -> PlayedWay:
    """Play ways until one borrows nothing, and return the best; as ``ordered``."""
    # A plan that survives the loss of a GPU has its services spread on purpose.
    exact = exact or problem.survive_gpu_loss
    best: PlayedWay | None = None
    for number in range(TRIES):
        rng = Random(f"{seed}/{number}") if number else None
        found = _Play(current, target, floors, problem, exact, frozenset(frozen), rng).run()
        if best is None or found.cost < best.cost:
            best = found
        if not best.borrowed:
            break
    assert best is not None
    return best


# -- playing --------------------------------------------------------------------------


@cache
def _clash(model: str, one: SlicePlace, other: SlicePlace) -> bool:
    """Tell whether two slots cannot be on one GPU at the same time."""
    return broken_rule(gpu_model(model), (one, other)) is not None


_Key = tuple[object, ...]
"""New instances with the same key may change places."""


class _Play:
    """What is where while an order is found."""

    def __init__(
        self,
        current: PartitionPlan,
        target: PartitionPlan,
        floors: Mapping[str, float],
        problem: Problem,
        exact: bool,  # noqa: FBT001 - the one caller is above
        frozen: frozenset[str],
        rng: Random | None,
    ) -> None:
        self._current, self._target, self._problem = current, target, problem
        self._floors = floors
        self._rng = rng
        self._exact = exact
        self._frozen = frozen
        self._model = {gpu.id: gpu.model for gpu in (*target.gpus, *current.gpus)}
        self._given = current.throughputs()
        # GPU -> slot -> what runs there; slots of the plan are Instances of it.
        self._busy: dict[str, dict[SlicePlace, Instance]] = {name: {} for name in self._model}
        self._idle: dict[str, set[SlicePlace]] = {name: set() for name in self._model}
        for gpu, one in current.instances:
            if one.service:
                self._busy[gpu.id][one.slot] = one
            else:
                self._idle[gpu.id].add(one.slot)
        self._goal: dict[str, set[SlicePlace]] = {name: set() for name in self._model}
        # Slots of the plan that wait for a service, and services that wait for slots.
        self._open: dict[str, set[SlicePlace]] = {name: set() for name in self._model}
        self._pool: dict[_Key, list[Instance]] = {}
        self._leaving = {(gpu, slot) for gpu, held in self._busy.items() for slot in held}
        for gpu, one in target.instances:
            self._goal[gpu.id].add(one.slot)
            there = self._busy[gpu.id].get(one.slot)
            if there is not None and there.service == one.service:
                self._leaving.discard((gpu.id, one.slot))
            elif one.service:
                self._open[gpu.id].add(one.slot)
                self._pool.setdefault(self._key(gpu.id, one.slot), []).append(one)
        self._placed: dict[tuple[str, SlicePlace], Instance] = {}
        self._borrowed: list[str] = []
        self._log: list[PlannedAction] = []

    def _key(self, gpu: str, slot: SlicePlace) -> _Key:
        return (gpu, slot) if self._exact else (self._model[gpu], slot.profile)

    def run(self) -> PlayedWay:
        """Play until everything is where the plan wants it."""
        while True:
            while self._fill() or self._unblock():
                pass
            if not any(self._open.values()):
                break
            self._relieve()
        for gpu, slot in sorted(self._leaving):
            self._drain(gpu, slot)
        for gpu in self._model:
            self._cut(gpu, set())
        return PlayedWay(tuple(self._log), self._model, self._reached(), tuple(self._borrowed))

    def _reached(self) -> PartitionPlan:
        """Return the plan, with services where they came to be."""
        return PartitionPlan(
            tuple(
                replace(
                    gpu,
                    instances=tuple(
                        self._placed.get((gpu.id, one.slot), one) for one in gpu.instances
                    ),
                )
                for gpu in self._target.gpus
            )
        )

    def _spare(self, service: str) -> float:
        floor = self._floors.get(service, 0.0)
        return self._given.get(service, 0.0) - floor * (1 - _SLACK)

    def _shuffled(self, things: list[tuple[str, SlicePlace]]) -> list[tuple[str, SlicePlace]]:
        things.sort()
        if self._rng is not None:
            self._rng.shuffle(things)
        return things

    # -- what happens -----------------------------------------------------------------

    def _start(self, gpu: str, one: Instance) -> None:
        self._idle[gpu].discard(one.slot)
        self._busy[gpu][one.slot] = one
        self._given[one.service] = self._given.get(one.service, 0.0) + one.throughput_per_s
        self._log.append(PlannedAction(StepKind.CREATE, gpu, one))

    def _drain(self, gpu: str, slot: SlicePlace) -> None:
        one = self._busy[gpu].pop(slot)
        self._leaving.discard((gpu, slot))
        self._idle[gpu].add(slot)
        self._given[one.service] -= one.throughput_per_s
        self._log.append(PlannedAction(StepKind.DELETE, gpu, one))

    def _cut(self, gpu: str, wanted: set[SlicePlace]) -> None:
        """Make slots that are missing; idle ones that nobody wants go at the same time."""
        missing = wanted - self._idle[gpu]
        if missing or not wanted:
            gone = {
                slot
                for slot in self._idle[gpu] - wanted
                if slot not in self._goal[gpu]
                or any(_clash(self._model[gpu], slot, new) for new in missing)
            }
            self._repartition(gpu, gone, missing)

    def _repartition(self, gpu: str, gone: set[SlicePlace], made: set[SlicePlace]) -> None:
        if gone or made:
            self._idle[gpu] = (self._idle[gpu] - gone) | made
            self._log.append(
                PlannedAction(
                    StepKind.REPARTITION,
                    gpu,
                    destroyed=tuple(sorted(gone)),
                    made=tuple(sorted(made)),
                )
            )

    # -- what to do next --------------------------------------------------------------

    def _blockers(self, gpu: str, slot: SlicePlace) -> list[SlicePlace]:
        model = self._model[gpu]
        return [held for held in self._busy[gpu] if _clash(model, slot, held)]

    def _fill(self) -> bool:
        """Start services in every slot of the plan whose units are free."""
        ready: list[tuple[str, SlicePlace]] = []
        for gpu, slots in self._open.items():
            free = {slot for slot in slots if not self._blockers(gpu, slot)}
            if free:
                self._cut(gpu, free)
                ready += [(gpu, slot) for slot in free]
        urgent = self._urgency() if ready else {}
        for gpu, slot in self._shuffled(ready):
            waiting = self._pool[self._key(gpu, slot)]
            first = max(waiting, key=lambda one: (urgent.get(one.service, 0.0), one.service))
            waiting.remove(first)
            one = replace(first, start=slot.start)
            self._open[gpu].discard(slot)
            self._placed[gpu, slot] = one
            self._start(gpu, one)
            spare = self._spare(one.service)
            urgent[one.service] = urgent.get(one.service, 0.0) - max(spare, 0.0)
        return bool(ready)

    def _urgency(self) -> dict[str, float]:
        """Return the throughput that each service lacks to leave the slots of others."""
        blocking = dict.fromkeys(
            (gpu, held)
            for gpu, slots in self._open.items()
            for slot in sorted(slots)
            for held in self._blockers(gpu, slot)
        )
        return self._lacking(blocking)

    def _unblock(self) -> bool:
        """Drain what stands in the way of slots, where services can spare it."""
        places = self._shuffled(
            [(gpu, one) for gpu, held in self._open.items() for one in held]
        )
        moved = False
        for gpu, slot in sorted(places, key=lambda place: len(self._blockers(*place))):
            blockers = self._blockers(gpu, slot)
            if not self._lacking((gpu, held) for held in blockers):
                for held in blockers:
                    self._drain(gpu, held)
                moved = moved or bool(blockers)
        return moved

    def _lacking(self, places: Iterable[tuple[str, SlicePlace]]) -> dict[str, float]:
        """Return what services would lack if the instances at these places were gone."""
        gone: dict[str, float] = {}
        for gpu, slot in places:
            one = self._busy[gpu][slot]
            gone[one.service] = gone.get(one.service, 0.0) + one.throughput_per_s
        # Who has no floor lacks nothing: what is left of a sum may be a little below 0.
        return {
            service: amount - self._spare(service)
            for service, amount in gone.items()
            if self._floors.get(service, 0.0) > 0 and amount > self._spare(service)
        }

    # -- making room ------------------------------------------------------------------

    def _relieve(self) -> None:
        """Start temporary instances, so that what stands in the way of one slot can go."""
        places = self._shuffled(
            [(gpu, one) for gpu, held in self._open.items() for one in held]
        )
        tried = [(self._stopgaps(gpu, slot), gpu, slot) for gpu, slot in places]
        stopgaps, gpu, slot = min(tried, key=lambda one: (one[0].borrows, len(one[0].places)))
        if stopgaps.borrows and self._tidy():
            return
        for name, one in stopgaps.places:
            if name not in self._model:
                self._borrow(name, stopgaps.models[name])
            self._cut(name, {one.slot})
            self._start(name, one)
            self._leaving.add((name, one.slot))
        for held in self._blockers(gpu, slot):
            self._drain(gpu, held)

    def _tidy(self) -> bool:
        """Drain whatever can be spared, in nobody's way or not, to have its room."""
        moved = False
        for gpu, slot in self._shuffled([*self._leaving]):
            if not self._lacking([(gpu, slot)]):
                self._drain(gpu, slot)
                moved = True
        return moved

    def _borrow(self, name: str, model: str) -> None:
        self._model[name] = model
        self._busy[name], self._idle[name] = {}, set()
        self._goal[name], self._open[name] = set(), set()
        self._borrowed.append(name)

    def _stopgaps(self, gpu: str, slot: SlicePlace) -> "_Stopgaps":
        """Return temporary instances that let everything in the way of a slot go."""
        found = _Stopgaps([], {}, 0)
        taken: dict[str, list[SlicePlace]] = {}
        in_the_way = [(gpu, held) for held in self._blockers(gpu, slot)]
        for service, lack in self._lacking(in_the_way).items():
            left = lack
            while left > 0:
                name, model, one = self._stopgap(service, left, taken, found)
                found.places.append((name, one))
                taken.setdefault(name, []).append(one.slot)
                if name not in self._model and name not in found.models:
                    found.models[name] = model
                    found.borrows += 1
                left -= one.throughput_per_s
        return found

    def _stopgap(
        self,
        service: str,
        lack: float,
        taken: Mapping[str, list[SlicePlace]],
        found: "_Stopgaps",
    ) -> tuple[str, str, Instance]:
        """Return where one temporary instance goes, the smallest that suffices."""
        for names in (self._model, found.models):
            choices = [
                (name, model, one)
                for name, model in names.items()
                for one in self._could_serve(service, model)
                if self._has_room(name, model, one.slot, taken.get(name, ()))
            ]
            if choices:
                return min(choices, key=lambda choice: _waste(choice[2], lack, choice[1]))
        # One new GPU at a time; its name is the next that is free.
        name = next(free_names([*self._model, *found.models, *self._frozen]))
        models = [offer.model for offer in self._problem.offers]
        fresh = [(name, m, one) for m in models for one in self._could_serve(service, m)]
        return min(fresh, key=lambda choice: _waste(choice[2], lack, choice[1]))

    def _could_serve(self, service: str, model: str) -> list[Instance]:
        return [
            instance_of(self._problem, service, model, profile.name, start)
            for profile in gpu_model(model).profiles
            if (service, model, profile.name) in self._problem.serving
            for start in profile.starts
        ]

    def _has_room(
        self, gpu: str, model: str, slot: SlicePlace, taken: Iterable[SlicePlace]
    ) -> bool:
        """Tell whether a slot is free of what runs, of what the plan wants, of ``taken``."""
        if gpu in self._frozen:
            return False
        held = (*self._busy.get(gpu, ()), *self._goal.get(gpu, ()), *taken)
        return not any(_clash(model, slot, other) for other in held)


@dataclass(slots=True)
class _Stopgaps:
    """Temporary instances, and the GPUs to borrow for them."""

    places: list[tuple[str, Instance]]
    models: dict[str, str]
    borrows: int


def _waste(one: Instance, lack: float, model: str) -> tuple[bool, float, int]:
    """Rank instances for a lack: the smallest that suffices, else the one that gives most."""
    suffices = one.throughput_per_s >= lack
    size = gpu_model(model).profile(one.profile).size
    return not suffices, size if suffices else -one.throughput_per_s, one.start


# -- what must wait for what ----------------------------------------------------------


def way_of(current: PartitionPlan, way: PlayedWay, floors: Mapping[str, float]) -> Transition:
    """Return a way that was played, with what must wait for what."""
    actions = merged(_actions(way.log, way.models, current, floors))
    return Transition(current, way.reached, floors, actions, way.borrowed)


def _actions(
    log: Iterable[PlannedAction],
    models: Mapping[str, str],
    current: PartitionPlan,
    floors: Mapping[str, float],
) -> list[Action]:
    """Return the log as actions, each after those that it must wait for."""
    waits = _Waits(current, floors)
    actions = []
    for number, action in enumerate(log):
        model = models[action.gpu]
        if action.kind is StepKind.REPARTITION:
            after = waits.repartition(number, action)
            steps = [
                *(
                    _slot_step(Verb.DESTROY, action.gpu, model, slot)
                    for slot in action.destroyed
                ),
                *(_slot_step(Verb.MAKE, action.gpu, model, slot) for slot in action.made),
            ]
        else:
            assert action.instance is not None
            is_create = action.kind is StepKind.CREATE
            wait = waits.create if is_create else waits.delete
            after = wait(number, action.gpu, action.instance)
            verb = Verb.START if is_create else Verb.DRAIN
            steps = [TransitionStep(verb, action.gpu, model, action.instance)]
        actions.append(Action(action.kind, tuple(steps), tuple(sorted(after))))
    return actions


def _slot_step(verb: Verb, gpu: str, model: str, slot: SlicePlace) -> TransitionStep:
    return TransitionStep(verb, gpu, model, Instance(slot.profile, slot.start))


class _Waits:
    """What happened last to every slot, and the starts and drains of every service."""

    def __init__(self, current: PartitionPlan, floors: Mapping[str, float]) -> None:
        self._floors = floors
        self._given = current.throughputs()
        # GPU -> its last repartition; (GPU, slot) -> what made it, started or drained it last.
        self._cut: dict[str, int] = {}
        self._last: dict[tuple[str, SlicePlace], int] = {}
        # Service -> its starts so far, with what each gives; and what its drains took.
        self._starts: dict[str, list[tuple[int, float]]] = {}
        self._taken: dict[str, float] = {}

    def repartition(self, number: int, action: PlannedAction) -> set[int]:
        """Return what a repartition waits for: drains of what it destroys, and the last."""
        after = {self._cut[action.gpu]} if action.gpu in self._cut else set[int]()
        for slot in action.destroyed:
            last = self._last.pop((action.gpu, slot), None)
            after |= set() if last is None else {last}
        self._cut[action.gpu] = number
        for slot in action.made:
            self._last[action.gpu, slot] = number
        return after

    def create(self, number: int, gpu: str, one: Instance) -> set[int]:
        """Return what a start waits for: its slot."""
        last = self._last.get((gpu, one.slot))
        self._last[gpu, one.slot] = number
        self._starts.setdefault(one.service, []).append((number, one.throughput_per_s))
        return set() if last is None else {last}

    def delete(self, number: int, gpu: str, one: Instance) -> set[int]:
        """Return what a drain waits for: its start, and starts that make up for it."""
        last = self._last.get((gpu, one.slot))
        self._last[gpu, one.slot] = number
        after = set() if last is None else {last}
        name = one.service
        self._taken[name] = self._taken.get(name, 0.0) + one.throughput_per_s
        floor = self._floors.get(name, 0.0) * (1 - _SLACK)
        given = self._given.get(name, 0.0) - self._taken[name]
        for start, amount in self._starts.get(name, ()):
            if given >= floor or not floor:
                break
            given += amount
            after.add(start)
        return after


def merged(actions: list[Action]) -> tuple[Action, ...]:
    """Join starts and drains of one service and profile that wait for nothing between them."""
    before = _ancestors(actions)
    partner: dict[int, int] = {}
    for number, action in enumerate(actions):
        if action.kind is not StepKind.DELETE:
            continue
        gone = action.steps[0].instance
        for start in sorted(action.after, reverse=True):
            made = actions[start]
            if (
                made.kind is StepKind.CREATE
                and start not in partner.values()
                and made.steps[0].instance.profile == gone.profile
                and made.steps[0].instance.service == gone.service
                and made.steps[0].gpu + str(made.steps[0].instance.slot)
                != action.steps[0].gpu + str(gone.slot)
                and {*action.after} <= before[start] | {start}
            ):
                partner[number] = start
                break
    return _joined(actions, partner)


def _ancestors(actions: list[Action]) -> list[set[int]]:
    found: list[set[int]] = []
    for action in actions:
        mine = {*action.after}
        for number in action.after:
            mine |= found[number]
        found.append(mine)
    return found


def _joined(actions: list[Action], partner: Mapping[int, int]) -> tuple[Action, ...]:
    """Return the actions with each drain at the place of the start that it joins."""
    drains = {start: number for number, start in partner.items()}
    place: dict[int, int] = {}
    joined: list[Action] = []
    for number, action in enumerate(actions):
        if number in partner:
            continue
        place[number] = len(joined)
        if number in drains:
            place[drains[number]] = len(joined)
            other = actions[drains[number]]
            action = Action(StepKind.MIGRATE, (*action.steps, *other.steps), action.after)
        joined.append(action)
    # Drains move forward to their starts, so what they wait for is known by then.
    return tuple(
        replace(action, after=tuple(sorted({place[number] for number in action.after})))
        for action in joined
    )
