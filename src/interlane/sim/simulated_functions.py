"""Functions beside the jobs of a simulated run: requests, replicas, and who slows whom down.

The engine of virtual time owns the clock; this plays requests one by one up to each of its
moments, tells the function scheduler what happens, and carries out what it says.  A request
goes to the replica that is free first, as soon as that is loaded, and one that would have to
wait for longer than a load calls for one more.  Every step (a minute) it is looked at who was
busy: from then on, jobs and replicas are as slow as they truly are beside each other, which
only ``TrueSlowdowns`` knows.  The scheduler is told what a monitor would measure.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from math import inf
from random import Random
from typing import Final

from interlane.functions.events import (
    CoRunsMeasured,
    DeviceJudged,
    DevicesChanged,
    DropReason,
    DropReplica,
    FunctionAction,
    FunctionDeployed,
    FunctionEvent,
    Held,
    JobsHeld,
    LoadReplica,
    RefuseReplica,
    ReplicasEnded,
    ReplicasLoaded,
    ReplicasNeeded,
    ReplicasObserved,
    SlotPassed,
)
from interlane.functions.scheduler import FunctionScheduler
from interlane.model import (
    MILLI,
    GpuRef,
    Job,
    Machine,
    MachineChanged,
    MachineEvent,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    Placement,
    Workload,
    WorkloadKind,
)
from interlane.policy.colocate.interference import CoRunReading, SlowdownTarget
from interlane.sim.function_figures import FunctionFigures
from interlane.sim.function_load import FunctionLoad, PlayedFunction, RequestGroups
from interlane.sim.true_slowdown import TrueSlowdowns

STEP_S: Final = 60.0
"""Seconds after which it is looked at who slows whom down."""
LEARN_STEPS: Final = 10
"""Steps between measurements that the scheduler learns from."""
OBSERVED_S: Final = 10.0
"""Seconds for which what was told of busy replicas is good enough."""
EVICTED_S: Final = 1.0
"""Seconds that a replica gets to end when it must make way, as the gateway gives it."""
NOISE: Final = 0.02
"""Relative error of what is measured."""
CLOSE: Final = 0.002
"""A slowdown that changes by less leaves a job's end where it is."""
REPLICAS_MAX: Final = 1_000_000
"""A function may have as many as it needs."""

_LOADED, _ENDED = range(2)


class _Replica:
    """A replica as it really is."""

    __slots__ = ("busy_s", "free_s", "gpu", "number", "place", "ready_s", "serves", "slowed")

    def __init__(
        self, number: int, place: int, serves: int, gpu: GpuRef, ready_s: float
    ) -> None:
        self.number = number
        self.place = place
        """Of its function."""
        self.serves = serves
        """Its workload's number in the truth."""
        self.gpu = gpu
        self.ready_s = ready_s
        self.free_s = ready_s
        """When it has done all it has in hand."""
        self.busy_s = 0.0
        """Seconds of work that it was given in this step."""
        self.slowed = 1.0


class _Served:
    """One function: who serves, and who waits."""

    __slots__ = ("asked", "free", "is_asked", "load_s", "played", "serves", "waiting")

    def __init__(self, played: PlayedFunction, serves: int) -> None:
        self.played = played
        self.serves = serves
        self.load_s = played.function.disk_load_s
        self.free: list[tuple[float, int]] = []
        """When each replica was free when last looked at; some may have left since."""
        self.waiting: deque[tuple[float, int]] = deque()
        """Requests for which there is no replica: when they came, and how many."""
        self.asked = 0
        """Requests in this slot."""
        self.is_asked = False
        """Whether a replica was asked for that has not come."""


class _RunningJob:
    """A job that holds GPUs which are told apart."""

    __slots__ = ("gpus", "held", "slowed", "trains")

    def __init__(self, trains: int, held: Mapping[GpuRef, Held]) -> None:
        self.trains = trains
        self.held = held
        self.gpus = len(held)
        self.slowed = 1.0


class SimulatedFunctions:
    """See the module's text."""

    def __init__(
        self,
        load: FunctionLoad,
        truth: TrueSlowdowns,
        scheduler: FunctionScheduler,
        machines: Iterable[Machine],
        jobs: Sequence[Job],
        *,
        seed: int = 0,
        step_s: float = STEP_S,
    ) -> None:
        self.scheduler = scheduler
        self._load = load
        self._truth = truth
        self._jobs = jobs
        self._seed = seed
        self._step_s = step_s
        self._begin_s = jobs[0].submitted_s if jobs else 0.0
        self._rng = Random(seed)
        self._machines = {one.id: one for one in machines}
        self._known = dict(self._machines)
        """All that were ever there."""
        self._requests: RequestGroups = load.groups()
        self._at = 0
        """The next request."""
        self._served = [
            _Served(one, truth.places[one.function.workload]) for one in load.functions
        ]
        self._places = {one.function.id: place for place, one in enumerate(load.functions)}
        self._replicas: dict[int, _Replica] = {}
        self._leaving: dict[int, _Replica] = {}
        self._on: dict[GpuRef, list[_Replica]] = {}
        self._coming: list[tuple[float, int, int]] = []
        """When replicas are loaded or gone: (time, which, number)."""
        self._running: dict[int, _RunningJob] = {}
        self._held: dict[GpuRef, dict[int, Held]] = {}
        """Device -> what jobs hold of it, by the job's number."""
        self._changed: dict[GpuRef, None] = {}
        self._steps = 0
        self._slots = 0
        self._observed_s = -inf
        self.next_s = self._begin_s
        """When it is looked at next; infinity when all requests have come."""
        self.figures = FunctionFigures()

    # -- what the engine tells --------------------------------------------------------

    def enter(self, number: int, placement: Placement) -> None:
        """Note where a job runs, or where it has grown to."""
        old = self._running.get(number)
        held = {} if old is None else dict(old.held)
        job = self._jobs[number]
        trains = self._truth.trained_by(job, self._seed)
        workload = Workload(WorkloadKind.JOB, self._truth.workloads[trains])
        for spot in placement.spots:
            demand = job.request.tasks[spot.task].demand
            share = min(1.0, spot.instances * demand.gpu_milli / MILLI)
            for gpu in spot.gpus:
                ref = GpuRef(spot.machine, gpu)
                card_mib = self._known[spot.machine].device(gpu).memory_mib
                # Who asks for no memory takes what its like was measured to take.
                own_mib = int(share * self._truth.memory[trains] * card_mib)
                mib = min(card_mib, spot.instances * demand.gpu_memory_mib or own_mib)
                held[ref] = Held(job.id, workload, mib, share * self._truth.use[trains])
                self._held.setdefault(ref, {})[number] = held[ref]
                self._changed[ref] = None
        if held:
            self._running[number] = _RunningJob(trains, held)

    def leave(self, number: int) -> None:
        """Note that a job runs no longer."""
        gone = self._running.pop(number, None)
        if gone is None:
            return
        self.figures.ended(number)
        for ref in gone.held:
            del self._held[ref][number]
            self._changed[ref] = None

    def follow(self, event: MachineEvent, now_s: float) -> None:
        """Note what becomes of a machine."""
        match event:
            case MachineJoined(machine) | MachineChanged(machine):
                self._machines[machine.id] = self._known[machine.id] = machine
            case MachineReturned(machine_id):
                self._machines[machine_id] = self._known[machine_id]
            case MachineLost(machine_id) | MachineLeft(machine_id):
                self._machines.pop(machine_id, None)
            case _:
                return
        if self._steps:
            self._tell(DevicesChanged(tuple(self._machines.values())), now_s)

    @property
    def _gpus(self) -> int:
        return sum(one.gpus for one in self._machines.values() if not one.pooled)

    def until(self, now_s: float) -> None:
        """Play all requests before a moment."""
        if self.next_s == inf:
            return
        requests, served = self._requests, self._served
        begin_s = self._begin_s
        end = bisect_left(requests.at_s, now_s - begin_s, self._at)
        for number in range(self._at, end):
            at_s = begin_s + requests.at_s[number]
            if self._coming and self._coming[0][0] <= at_s:
                self._come(at_s)
            self._ask(served[requests.place[number]], at_s, requests.weight[number])
        self._at = end
        self._come(now_s)

    def settle(self, now_s: float) -> dict[int, float]:
        """Tell what has become of jobs, and look around if it is time.

        Return the jobs that functions slow down otherwise than before.
        """
        if self.next_s == inf:
            return {}
        is_due = now_s >= self.next_s
        if is_due and not self._steps:
            self._open(now_s)
        if self._steps and self._changed:
            held = {ref: tuple(self._held.get(ref, {}).values()) for ref in self._changed}
            self._tell(JobsHeld(held), now_s)
        if self._steps:
            self._changed.clear()
        if not is_due:
            return {}
        changed = self._step(now_s) if self._steps else {}
        self._steps += 1
        self.next_s += self._step_s
        return self._close() if now_s >= self._begin_s + self._load.end_s else changed

    def _open(self, now_s: float) -> None:
        """Tell what is there when requests begin."""
        self._tell(DevicesChanged(tuple(self._machines.values())), now_s)
        held = {ref: tuple(there.values()) for ref, there in self._held.items()}
        self._tell(JobsHeld(held), now_s)
        for one in self._load.functions:
            self._tell(FunctionDeployed(one.function, REPLICAS_MAX), now_s)

    def _close(self) -> dict[int, float]:
        """End with the requests: who still waits does so in vain, and jobs are alone again."""
        for one in self._served:
            self.figures.missed += sum(weight for _, weight in one.waiting)
        for number in list(self._running):
            self.figures.ended(number)
        self.next_s = inf
        return {number: 1.0 for number, one in self._running.items() if one.slowed != 1.0}

    # -- the function scheduler -------------------------------------------------------

    def _tell(self, event: FunctionEvent, now_s: float) -> None:
        """Tell the scheduler, and carry out what it says."""
        actions: tuple[FunctionAction, ...] = self.scheduler.tell(event, now_s)
        while actions:
            ended = []
            for action in actions:
                if isinstance(action, LoadReplica):
                    self._bring(action, now_s)
                elif isinstance(action, DropReplica):
                    ended += self._drop(action, now_s)
                elif isinstance(action, RefuseReplica):
                    self._served[self._places[action.function]].is_asked = False
            actions = self.scheduler.tell(ReplicasEnded(tuple(ended)), now_s) if ended else ()

    def _bring(self, action: LoadReplica, now_s: float) -> None:
        place, there = self._places[action.function], self._on.setdefault(action.gpu, [])
        one = self._served[place]
        # Another one beside it is copied on the device.
        is_there = any(other.place == place and other.ready_s <= now_s for other in there)
        ready_s = now_s + (0.0 if is_there else one.load_s)
        replica = _Replica(action.replica, place, one.serves, action.gpu, ready_s)
        self._replicas[action.replica] = replica
        there.append(replica)
        heappush(one.free, (ready_s, action.replica))
        heappush(self._coming, (ready_s, _LOADED, action.replica))
        one.is_asked = False
        self.figures.loads += 1
        waiting, deadline_s = one.waiting, one.played.deadline_s
        while waiting:
            at_s, weight = waiting[0]
            if replica.free_s - at_s <= deadline_s:
                self._serve(one, replica, at_s, weight)
            elif now_s - at_s > deadline_s:
                self.figures.missed += weight
            else:
                break
            waiting.popleft()

    def _drop(self, action: DropReplica, now_s: float) -> list[int]:
        """Let a replica end when it has answered; return it if that is now."""
        replica = self._replicas.pop(action.replica)
        self._on[replica.gpu].remove(replica)
        end_s = max(now_s, replica.free_s if replica.free_s > replica.ready_s else now_s)
        if action.why in (DropReason.JOB, DropReason.BOUND):
            self.figures.evicted += 1
            killed_s = now_s + EVICTED_S
            if end_s > killed_s:
                took_s = self._served[replica.place].played.service_s * replica.slowed
                self.figures.missed += round((end_s - killed_s) / took_s)
                end_s = killed_s
        if end_s <= now_s:
            return [action.replica]
        self._leaving[action.replica] = replica
        heappush(self._coming, (end_s, _ENDED, action.replica))
        return []

    def _come(self, now_s: float) -> None:
        """Tell of replicas that were loaded or are gone by now."""
        while self._coming and self._coming[0][0] <= now_s:
            at_s, which, number = heappop(self._coming)
            if which == _ENDED:
                del self._leaving[number]
                self._tell(ReplicasEnded((number,)), at_s)
            elif number in self._replicas:
                self._tell(ReplicasLoaded((number,)), at_s)

    # -- requests ---------------------------------------------------------------------

    def _ask(self, one: _Served, at_s: float, weight: int) -> None:
        """Let requests come."""
        one.asked += weight
        self.figures.requests += weight
        free, replicas = one.free, self._replicas
        while free:
            replica = replicas.get(free[0][1])
            if replica is None:
                heappop(free)
            elif replica.free_s > free[0][0]:
                heapreplace(free, (replica.free_s, replica.number))
            else:
                break
        if not free:
            one.waiting.append((at_s, weight))
            self._need(one, at_s)
            return
        waits_s = max(0.0, free[0][0] - at_s)
        if waits_s > one.played.deadline_s:
            one.waiting.append((at_s, weight))
        else:
            self._serve(one, replicas[free[0][1]], at_s, weight)
        if waits_s > one.load_s:
            self._need(one, at_s)

    def _serve(self, one: _Served, replica: _Replica, at_s: float, weight: int) -> None:
        """Give requests to a replica."""
        begin_s = max(at_s, replica.free_s)
        each_s = one.played.service_s * replica.slowed
        took_s = weight * each_s
        replica.free_s = begin_s + took_s
        replica.busy_s += took_s
        latency_s = begin_s - at_s + each_s
        self.figures.served(
            latency_s,
            weight,
            is_cold=at_s < replica.ready_s,
            is_late=latency_s > one.played.deadline_s,
        )

    def _need(self, one: _Served, now_s: float) -> None:
        """Ask for one more replica, unless one was asked for that has not come."""
        if one.is_asked:
            return
        one.is_asked = True
        if now_s - self._observed_s >= OBSERVED_S:
            self._observe(now_s)
        name, until_s = one.played.function.id, now_s + one.played.deadline_s
        self._tell(ReplicasNeeded({name: 1}, {name: until_s}), now_s)

    def _observe(self, now_s: float) -> None:
        self._observed_s = now_s
        busy = frozenset(number for number, one in self._replicas.items() if one.free_s > now_s)
        asked = frozenset(one.played.function.id for one in self._served if one.asked)
        self._tell(ReplicasObserved(busy, asked), now_s)

    # -- steps ------------------------------------------------------------------------

    def _step(self, now_s: float) -> dict[int, float]:
        """Look at who was busy, and say how much slower jobs are from now on."""
        slower: dict[int, float] = {}
        readings: list[CoRunReading] = []
        learns = self._steps % LEARN_STEPS == 0
        for gpu, there in list(self._on.items()):
            if there:
                self._look(gpu, list(there), slower, readings if learns else None, now_s)
        idle = self._gpus - sum(map(bool, self._held.values()))
        self.figures.passed(self._step_s, len(self._replicas), idle)
        use = self._truth.use
        for number, one in self._running.items():
            self.figures.trained(number, one.gpus, use[one.trains], one.slowed, self._step_s)
        if readings:
            self._tell(CoRunsMeasured(tuple(readings)), now_s)
        self._end_slots(now_s)
        changed = {}
        for number, one in self._running.items():
            slowed = slower.get(number, 1.0)
            if abs(slowed - one.slowed) > CLOSE:
                one.slowed = changed[number] = slowed
        return changed

    def _look(
        self,
        gpu: GpuRef,
        there: Sequence[_Replica],
        slower: dict[int, float],
        readings: list[CoRunReading] | None,
        now_s: float,
    ) -> None:
        """Find how much everybody on a GPU slows everybody down, and tell what is measured."""
        truth, step_s = self._truth, self._step_s
        busy = [(one, min(1.0, one.busy_s / step_s)) for one in there if one.busy_s > 0]
        jobs = self._held.get(gpu, {})
        worst: float | None = None
        for number in jobs:
            trains = self._running[number].trains
            slowed = truth.slowdown(trains, [(one.serves, part) for one, part in busy])
            slower[number] = max(slower.get(number, 1.0), slowed)
            worst = slowed if worst is None else max(worst, slowed)
        trained = [(self._running[number].trains, 1.0) for number in jobs]
        for one in there:
            others = [(two.serves, part) for two, part in busy if two is not one]
            one.slowed = (
                truth.slowdown(one.serves, trained + others) if trained or others else 1.0
            )
        used = sum(
            part * self._served[one.place].played.function.use / one.slowed
            for one, part in busy
        )
        uses = [truth.use[trains] for trains, _ in trained]
        self.figures.worked(step_s * used, max(uses, default=None))
        for one, _ in busy:
            one.busy_s = max(0.0, one.busy_s - step_s)
        if not busy:
            return
        off = 1.0 + NOISE * (2.0 * self._rng.random() - 1.0)
        p99 = {one.number: off * one.slowed for one, _ in busy}
        self._tell(DeviceJudged(gpu, None if worst is None else worst * off, p99), now_s)
        if readings is not None and len(jobs) == 1 and worst is not None:
            self._read(gpu, next(iter(jobs)), [one for one, _ in busy], worst / off, readings)

    def _read(
        self,
        gpu: GpuRef,
        number: int,
        busy: Sequence[_Replica],
        slowed: float,
        readings: list[CoRunReading],
    ) -> None:
        """Note what a job and functions beside it teach."""
        gpu_type = self._known[gpu.machine].device(gpu.index).type
        job = str(self._running[number].held[gpu].workload)
        names = tuple(self._load.functions[one.place].function.workload for one in busy)
        slowed = max(1.0, slowed)
        readings.append(CoRunReading(gpu_type, SlowdownTarget.TRAINING, job, names, slowed))
        if len(names) == 1:
            readings.append(
                CoRunReading(gpu_type, SlowdownTarget.LATENCY, *names, (job,), busy[0].slowed)
            )

    def _end_slots(self, now_s: float) -> None:
        """Tell of slots that have ended."""
        while now_s >= self._begin_s + (self._slots + 1) * self._load.slot_s:
            self._slots += 1
            self._observe(now_s)
            counts = {
                name: float(one.asked)
                for name, one in zip(self._places, self._served, strict=True)
                if one.asked
            }
            for one in self._served:
                one.asked, one.is_asked = 0, False
            self._tell(SlotPassed(counts), now_s)
