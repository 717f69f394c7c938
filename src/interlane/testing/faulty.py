"""Policies with one planted fault each; a suite that does not catch them all is too weak.

``PlainFirstFit`` is the sound placer that they are spoiled copies of, and a short example of
a placer that no compiled rule expresses.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf, nan
from random import Random
from typing import Final

import numpy as np

from interlane.kernel.ledger import Ledger
from interlane.kernel.rest import Wrapper
from interlane.model import (
    Event,
    Job,
    MachineChanged,
    MachineDrained,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineReturned,
    MachineUndrained,
    Occupied,
    Placement,
    Refusal,
    Request,
    Spot,
    Submitted,
    Task,
)
from interlane.policy.base import (
    ClusterView,
    FreeMachine,
    Key,
    Order,
    PlacementRule,
    Placer,
    TypeRule,
)
from interlane.policy.order import Fifo
from interlane.policy.scores import Score

# -- a sound placer in plain Python -------------------------------------------------------


class _Sketch:
    """A private copy of one machine's free amounts, to plan on."""

    def __init__(self, free: FreeMachine) -> None:
        self.free = free
        self.cpu_milli = free.cpu_milli
        self.memory_mib = free.memory_mib
        self.gpu_milli = list(free.gpu_milli)
        self.gpu_memory_mib = list(free.gpu_memory_mib)

    def take(self, task: Task, types: TypeRule) -> tuple[int, ...] | None:
        """Take one instance and return its GPUs, or None if it does not fit."""
        needs = task.demand
        if self.cpu_milli < needs.cpu_milli or self.memory_mib < needs.memory_mib:
            return None
        gpus: tuple[int, ...] = ()
        if needs.gpus and self.free.pooled:
            if self.gpu_milli[0] < needs.gpu_milli_total:
                return None
            self.gpu_milli[0] -= needs.gpu_milli_total
        elif needs.gpus:
            able = [
                gpu
                for gpu, milli in enumerate(self.gpu_milli)
                if milli >= needs.gpu_milli
                and self.gpu_memory_mib[gpu] >= needs.gpu_memory_mib
                and self.free.gpu_types[gpu] in (types.binding(needs) or self.free.gpu_types)
            ]
            # The emptiest first: with several shares, anything else may strand the next.
            able.sort(key=lambda gpu: -self.gpu_milli[gpu])
            if len(able) < needs.gpus:
                return None
            gpus = tuple(sorted(able[: needs.gpus]))
            for gpu in gpus:
                self.gpu_milli[gpu] -= needs.gpu_milli
                self.gpu_memory_mib[gpu] -= needs.gpu_memory_mib
        self.cpu_milli -= needs.cpu_milli
        self.memory_mib -= needs.memory_mib
        return gpus


@dataclass(frozen=True, slots=True)
class PlainFirstFit:
    """First fit in plain Python: the first machine in cluster order that has room."""

    types: TypeRule = TypeRule.EXACT

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Return where every instance goes, or why the job cannot be placed now."""
        sketches: dict[int, _Sketch] = {}
        spots: list[Spot] = []
        for number, task in enumerate(job.request.tasks):
            found = self._place_task(task, number, view, sketches)
            if found is None:
                return view.why_not(job, self.types)
            spots += found
        return Placement(tuple(spots))

    def _place_task(
        self, task: Task, number: int, view: ClusterView, sketches: dict[int, _Sketch]
    ) -> list[Spot] | None:
        spots: list[Spot] = []
        wanted = task.least if task.same_machine else task.instances
        for index in list(view.candidates(task, self.types)):
            sketch = sketches.setdefault(index, _Sketch(view.free(index)))
            here: list[Spot] = []
            while len(spots) + len(here) < wanted:
                gpus = sketch.take(task, self.types)
                if gpus is None:
                    break
                here.append(Spot(sketch.free.id, gpus, 1, number))
            if task.same_machine and len(here) < wanted:
                # The sketch keeps the loss: a little room is forgone, none is invented.
                continue
            spots += here
            if len(spots) == wanted:
                break
        return spots if len(spots) >= task.least else None


_SOUND: Final = PlainFirstFit()


# -- planted faults: placers --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Overcommits(PlainFirstFit):
    """Puts everything on the first GPUs of the first machine, free or not."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Look at the size of the machine and not at what is free."""
        first = view.free(0)
        spots = [
            Spot(
                first.id,
                () if first.pooled else tuple(range(task.demand.gpus)),
                task.instances,
                n,
            )
            for n, task in enumerate(job.request.tasks)
        ]
        return Placement(tuple(spots))


@dataclass(frozen=True, slots=True)
class AsksForLess(PlainFirstFit):
    """Asks where a hundredth of the job would fit and puts all of it there."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Plan for less than was asked."""
        return _SOUND.place(_hundredth(job), view, rng)


def _hundredth(job: Job) -> Job:
    small = tuple(
        replace(
            task,
            demand=replace(
                task.demand,
                gpu_milli=1 + task.demand.gpu_milli // 100,
                gpu_memory_mib=0,
                cpu_milli=0,
                memory_mib=0,
            ),
        )
        for task in job.request.tasks
    )
    return replace(job, request=Request(small))


@dataclass(frozen=True, slots=True)
class ChoosesForLess(PlainFirstFit):
    """Lets the view choose for a hundredth of the job and passes that off as its own."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Let a compiled rule plan for less than was asked."""
        return view.choose(_hundredth(job), PlacementRule(Score.FIRST))


@dataclass(frozen=True, slots=True)
class InventsMachines(PlainFirstFit):
    """Sends everything to a machine that does not exist."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Rename the machines."""
        answer = _SOUND.place(job, view, rng)
        if isinstance(answer, Refusal):
            return answer
        spots = (replace(spot, machine=MachineId("nowhere")) for spot in answer.spots)
        return Placement(tuple(spots))


@dataclass(frozen=True, slots=True)
class InventsTasks(PlainFirstFit):
    """Places a task that the job does not have."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Renumber the tasks."""
        answer = _SOUND.place(job, view, rng)
        if isinstance(answer, Refusal):
            return answer
        return Placement(tuple(replace(spot, task=spot.task + 1) for spot in answer.spots))


@dataclass(frozen=True, slots=True)
class InventsGpus(PlainFirstFit):
    """Names GPUs that the machine does not have."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Renumber the GPUs."""
        answer = _SOUND.place(job, view, rng)
        if isinstance(answer, Refusal):
            return answer
        shifted = (
            replace(spot, gpus=tuple(gpu + 60 for gpu in spot.gpus)) for spot in answer.spots
        )
        return Placement(tuple(shifted))


@dataclass(frozen=True, slots=True)
class RollsGlobalRng(PlainFirstFit):
    """Draws from the random generator of the whole process."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Roll, and ignore the result."""
        random.random()
        return _SOUND.place(job, view, rng)


@dataclass(frozen=True, slots=True)
class RollsNumpyRng(PlainFirstFit):
    """Draws from numpy's global random generator."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Roll, and ignore the result."""
        np.random.random()
        return _SOUND.place(job, view, rng)


@dataclass(frozen=True, slots=True)
class WritesToTheState(PlainFirstFit):
    """Takes what it places from the state by itself."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Reach behind the view."""
        ledger = getattr(view, "_ledger")  # noqa: B009
        assert isinstance(ledger, Ledger)
        ledger.free[0, 0] -= 1
        return _SOUND.place(job, view, rng)


@dataclass(frozen=True, slots=True)
class WritesToTheIndex(PlainFirstFit):
    """Spoils the view's own notes instead of the state."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Reach behind the view."""
        answer = _SOUND.place(job, view, rng)
        getattr(view, "sums")[:] += 1  # noqa: B009
        return answer


@dataclass(frozen=True, slots=True)
class PlacesHalf(PlainFirstFit):
    """Places one instance less than a gang needs."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Forget the last instance."""
        answer = _SOUND.place(job, view, rng)
        if isinstance(answer, Placement):
            return Placement(answer.spots[: max(1, answer.instances // 2)])
        return answer


@dataclass(frozen=True, slots=True)
class PlacesTooMany(PlainFirstFit):
    """Places an instance more than was asked for."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Repeat the last instance."""
        answer = _SOUND.place(job, view, rng)
        if isinstance(answer, Placement):
            return Placement((*answer.spots, answer.spots[-1]))
        return answer


@dataclass(frozen=True, slots=True)
class RefusesSilently(PlainFirstFit):
    """Says no and nothing else."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Withhold the reason."""
        answer = _SOUND.place(job, view, rng)
        return (
            answer if isinstance(answer, Placement) else replace(answer, reason="", remedy="")
        )


@dataclass(frozen=True, slots=True)
class RefusesWithoutRemedy(PlainFirstFit):
    """Says why not, but not what would help."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Withhold the remedy."""
        answer = _SOUND.place(job, view, rng)
        return answer if isinstance(answer, Placement) else replace(answer, remedy="")


@dataclass(frozen=True, slots=True)
class NamesAGpuTwice(PlainFirstFit):
    """Gives an instance with several GPUs the same one several times."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Repeat the first GPU."""
        answer = _SOUND.place(job, view, rng)
        if isinstance(answer, Refusal):
            return answer
        return Placement(
            tuple(replace(spot, gpus=spot.gpus[:1] * len(spot.gpus)) for spot in answer.spots)
        )


@dataclass(frozen=True, slots=True)
class IgnoresTypes(PlainFirstFit):
    """Takes any GPU, whatever types the job names."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Place as if any type would do."""
        return PlainFirstFit(TypeRule.ANY).place(job, view, rng)


@dataclass(frozen=True, slots=True)
class SpreadsWhatBelongsTogether(PlainFirstFit):
    """Places a gang that wants one machine on several."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Place as if togetherness had not been asked for."""
        apart = tuple(replace(task, same_machine=False) for task in job.request.tasks)
        return _SOUND.place(replace(job, request=Request(apart)), view, rng)


@dataclass(frozen=True, slots=True)
class UsesLostMachines(PlainFirstFit):
    """Looks at what machines have free and not at whether they are there."""

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Go on to the next machine number for as long as there is one."""
        return _SOUND.place(job, _Blind(view), rng)


class _Blind:
    """A view that offers every machine with the right type as a candidate."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.room = view.room
        self.free = view.free
        self.choose = view.choose
        self.why_not = view.why_not

    def candidates(self, task: Task, types: TypeRule = TypeRule.EXACT) -> Iterator[int]:
        """Offer all machines."""
        allowed = types.binding(task.demand) if task.demand.gpus else frozenset()
        for number in count():
            try:
                free = self._view.free(number)
            except IndexError:
                return
            if not allowed or free.gpu_type in allowed | {Ledger.wildcard}:
                yield number


@dataclass(slots=True)
class ChangesItsMind:
    """Keeps count and answers every other question the other way round."""

    types: TypeRule = TypeRule.EXACT
    asked: int = 0

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Refuse every second time."""
        self.asked += 1
        answer = _SOUND.place(job, view, rng)
        if self.asked % 2 or isinstance(answer, Refusal):
            return answer
        return view.why_not(job, self.types)


FAULTY_PLACERS: Final[dict[str, Callable[[], Placer]]] = {
    "overcommits": Overcommits,
    "asks for less than the job needs": AsksForLess,
    "chooses for less than the job needs": ChoosesForLess,
    "invents machines": InventsMachines,
    "invents tasks": InventsTasks,
    "invents GPUs": InventsGpus,
    "uses the global random generator": RollsGlobalRng,
    "uses numpy's global random generator": RollsNumpyRng,
    "writes to the state": WritesToTheState,
    "writes to the view's index": WritesToTheIndex,
    "places half the gang": PlacesHalf,
    "places too many": PlacesTooMany,
    "refuses silently": RefusesSilently,
    "refuses without a remedy": RefusesWithoutRemedy,
    "names a GPU twice": NamesAGpuTwice,
    "ignores GPU types": IgnoresTypes,
    "spreads what belongs together": SpreadsWhatBelongsTogether,
    "uses lost machines": UsesLostMachines,
    "answers differently when asked twice": ChangesItsMind,
}


# -- planted faults: orders ---------------------------------------------------------------


@dataclass(slots=True)
class _Spoiled:
    """An order that answers as fifo does, to be spoiled."""

    sound: Fifo = field(default_factory=Fifo)
    asked: int = 0
    preempts: bool = False
    keeps_accounts: bool = False
    rank_slope: float = 0.0
    counts_lost_work: bool = False

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by time of submission."""
        return self.sound.key(job, ran_s)

    def rank(self, job: Job, ran_s: float) -> float:
        """Rank all alike."""
        return 0.0

    def rank_rises_after_s(self, job: Job, ran_s: float) -> float | None:
        """Never."""
        return None

    def account(self, job: Job) -> str:
        """Charge the user."""
        return job.user

    def share(self, account: str, gpu_milli_running: int) -> float:
        """Return what runs."""
        return float(gpu_milli_running)


class KeyIsNotANumber(_Spoiled):
    """Compares with nothing."""

    def key(self, job: Job, ran_s: float) -> Key:
        """Return no number."""
        return (nan, 0.0)


class KeyIsEndless(_Spoiled):
    """Puts all jobs without an estimate at the same, endless distance."""

    def key(self, job: Job, ran_s: float) -> Key:
        """Return infinity."""
        return (inf, -1.0)


class RollsForTheOrder(_Spoiled):
    """Draws lots from the global random generator."""

    def key(self, job: Job, ran_s: float) -> Key:
        """Roll and ignore the result."""
        random.random()
        return self.sound.key(job, ran_s)


class DrawsLots(_Spoiled):
    """Draws lots from random generator of its own."""

    rng: Random = Random(0)

    def key(self, job: Job, ran_s: float) -> Key:
        """Roll."""
        return (self.rng.random(), 0.0)


class CountsQuestions(_Spoiled):
    """Favours whoever was asked about last."""

    def key(self, job: Job, ran_s: float) -> Key:
        """Return a smaller key every time."""
        self.asked += 1
        return (-float(self.asked), 0.0)


class RankFallsWhileWaiting(_Spoiled):
    """Lets jobs deserve more the longer they wait, which makes preemption go in circles."""

    def __init__(self) -> None:
        super().__init__(preempts=True)

    def rank(self, job: Job, ran_s: float) -> float:
        """Return a smaller rank every time."""
        self.asked += 1
        return -float(self.asked)


class PromisesNoRise(_Spoiled):
    """Asks to be woken for a rise that never comes."""

    def __init__(self) -> None:
        super().__init__(preempts=True)

    def rank_rises_after_s(self, job: Job, ran_s: float) -> float | None:
        """Promise it in ten seconds, always."""
        return 10.0


class RisesAtOnce(_Spoiled):
    """Asks to be woken now, and then again now."""

    def __init__(self) -> None:
        super().__init__(preempts=True)

    def rank_rises_after_s(self, job: Job, ran_s: float) -> float | None:
        """Promise it at once."""
        return 0.0


class ForgetsService(_Spoiled):
    """Ranks by the seconds run, but lets a job that lost its work begin anew."""

    def __init__(self) -> None:
        super().__init__(preempts=True)

    def rank(self, job: Job, ran_s: float) -> float:
        """Rise by a step after ten seconds."""
        return float(ran_s >= 10.0)

    def rank_rises_after_s(self, job: Job, ran_s: float) -> float | None:
        """Return when that is."""
        return 10.0 - ran_s if ran_s < 10.0 else None


class SlopesTheOtherWay(_Spoiled):
    """Says that running lowers its ranks, and does not lower them."""

    def __init__(self) -> None:
        super().__init__(preempts=True, rank_slope=-1.0)

    def rank(self, job: Job, ran_s: float) -> float:
        """Return the same rank always."""
        return 1e6


class FavoursTheRich(_Spoiled):
    """Prefers the account that runs the most."""

    def __init__(self) -> None:
        super().__init__(keeps_accounts=True)

    def share(self, account: str, gpu_milli_running: int) -> float:
        """Return less for more."""
        return -float(gpu_milli_running)


FAULTY_ORDERS: Final[dict[str, Callable[[], Order]]] = {
    "a key that is not a number": KeyIsNotANumber,
    "an endless key": KeyIsEndless,
    "uses the global random generator": RollsForTheOrder,
    "draws lots": DrawsLots,
    "counts questions": CountsQuestions,
    "a rank that falls while waiting": RankFallsWhileWaiting,
    "a rise that never comes": PromisesNoRise,
    "a rise at once": RisesAtOnce,
    "service that is forgotten": ForgetsService,
    "a slope that is not there": SlopesTheOtherWay,
    "favours the rich": FavoursTheRich,
}


# -- planted faults: schedulers -----------------------------------------------------------


class _Misheard(Wrapper):
    """A scheduler that learns events as ``hears`` tells them."""

    def hears(self, event: Event) -> Event | None:
        """Return what the scheduler understands; None for nothing."""
        return event

    def learn(self, event: Event, now_s: float) -> None:
        """Take in what was understood."""
        heard = self.hears(event)
        if heard is not None:
            super().learn(heard, now_s)


class IgnoresDrains(_Misheard):
    """Places new work on drained machines."""

    def hears(self, event: Event) -> Event | None:
        """Miss drains."""
        return None if isinstance(event, MachineDrained) else event


class IgnoresOthers(_Misheard):
    """Gives away what others occupy."""

    def hears(self, event: Event) -> Event | None:
        """Miss what others have."""
        return None if isinstance(event, Occupied) else event


class KeepsJobsOnGoneMachines(_Misheard):
    """Takes a machine that left for one that takes nothing new."""

    def hears(self, event: Event) -> Event | None:
        """Mistake leaving for draining."""
        return MachineDrained(event.machine_id) if isinstance(event, MachineLeft) else event


class ForgetsDrains(_Misheard):
    """Takes a machine that returns for one that takes new work."""

    def learn(self, event: Event, now_s: float) -> None:
        """Undrain whoever returns."""
        super().learn(event, now_s)
        if isinstance(event, MachineReturned):
            super().learn(MachineUndrained(event.machine_id), now_s)


class IgnoresTaints(_Misheard):
    """Places work on machines whose taints it does not tolerate."""

    def hears(self, event: Event) -> Event | None:
        """Miss taints."""
        if isinstance(event, MachineJoined | MachineChanged):
            return type(event)(replace(event.machine, taints=()))
        return event


class TakesDevicesForAlike(_Misheard):
    """Takes all GPUs of a machine for what its first one is."""

    def hears(self, event: Event) -> Event | None:
        """Miss the differences."""
        if isinstance(event, MachineJoined | MachineChanged) and event.machine.devices:
            machine = event.machine
            first = machine.devices[0]
            alike = replace(
                machine, gpu_type=first.type, gpu_memory_mib=first.memory_mib, devices=()
            )
            return type(event)(alike)
        return event


class CrossesDomains(_Misheard):
    """Places gangs wherever there is room."""

    def hears(self, event: Event) -> Event | None:
        """Miss how close a job wants to be."""
        if isinstance(event, Submitted):
            job = event.job
            return Submitted(replace(job, request=Request(job.request.tasks)))
        return event


FAULTY_SCHEDULERS: Final[dict[str, type[Wrapper]]] = {
    "ignores drains": IgnoresDrains,
    "forgets drains": ForgetsDrains,
    "ignores what others occupy": IgnoresOthers,
    "keeps jobs on machines that left": KeepsJobsOnGoneMachines,
    "ignores taints": IgnoresTaints,
    "takes devices for alike": TakesDevicesForAlike,
    "crosses domains": CrossesDomains,
}
