"""Training and functions on the same GPUs, minute by minute.

Training jobs take GPUs in the order they come.  Functions are asked, and the function scheduler
is told: it says where replicas are loaded and which are dropped, ahead of requests and when it
missed some, which is a cold start.  The world carries it out.  A replica loads its model first
unless it is there already.  How much everybody really slows down comes from measured pairs,
which the scheduler has seen only in part; it is told what is measured as time goes on.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
    ReplicasEnded,
    ReplicasLoaded,
    ReplicasNeeded,
    ReplicasObserved,
    SlotPassed,
)
from interlane.functions.scheduler import FunctionScheduler
from interlane.model import (
    GpuRef,
    JobId,
    Machine,
    MachineId,
    Workload,
    WorkloadKind,
)
from interlane.model.function import Function
from interlane.policy.colocate.gpus import LIMIT
from interlane.policy.colocate.interference import CoRunReading, SlowdownTarget
from interlane.policy.colocate.slowdown import Slowdowns

MINUTE_S: Final = 60.0
HOUR_MINUTES: Final = 60
LEARN_MINUTES: Final = 10
"""Minutes between measurements that a table learns from."""
REPLICAS_MAX: Final = 1_000_000
"""A function may have as many as it needs."""
NOISE: Final = 0.02
"""Relative error of what is measured."""


@dataclass(frozen=True, slots=True)
class Training:
    """A training job that needs one GPU."""

    workload: str
    memory_mib: int
    use: float
    """Share of the GPU that it keeps busy alone."""
    minute: int
    """When it is submitted."""
    work_s: float
    """How long it takes alone."""


@dataclass(frozen=True, eq=False)
class ColocationScenario:
    """All that happens, whoever decides."""

    gpus: int
    gpu_type: str
    memory_mib: int
    trainings: tuple[Training, ...]
    functions: tuple[Function, ...]
    """One replica of each function; ids are made unique as replicas come."""
    counts: NDArray[np.float64]
    """Requests, minute x function."""
    capacity: NDArray[np.float64]
    """Requests in a minute that one replica of each function serves."""
    load_s: tuple[float, ...]
    """Times that loading a model took, drawn from."""
    truth: Slowdowns
    """How much everybody really slows down."""
    seed: int = 0

    @property
    def needs(self) -> NDArray[np.int64]:
        """Replicas that the requests of each minute take."""
        return np.ceil(self.counts / self.capacity).astype(np.int64)


@dataclass
class _Job:
    training: Training
    left_s: float
    lost: float = 0.0
    """Minutes lost in the running hour."""
    minutes: int = 0


@dataclass(eq=False)
class _Replica:
    number: int
    place: int
    """Of its function in the scenario."""
    function: Function
    gpu: GpuRef
    ready_s: float
    is_cold: bool
    """Whether a request called for it, instead of a forecast."""

    def loading(self, now_s: float) -> float:
        """Return the part of the minute that begins in which it loads."""
        return min(1.0, max(0.0, self.ready_s - now_s) / MINUTE_S)


@dataclass
class ColocationOutcome:
    """What came of it."""

    busy: dict[str, float] = field(default_factory=dict)
    """Class of training use -> GPU-minutes kept busy."""
    minutes: dict[str, int] = field(default_factory=dict)
    """Class -> GPU-minutes."""
    job_hours: float = 0.0
    """Hours of training, each judged by itself; the last of a job may be a part of one."""
    job_hours_broken: float = 0.0
    """Those in which the job lost more than its limit."""
    needed: int = 0
    """Replica-minutes that requests took."""
    unplaced: int = 0
    """Those for which there was no place."""
    loading: float = 0.0
    """Those that were spent loading; a cold start spends all of its minute."""
    slow: int = 0
    """Those in which a function was slower than its limit."""
    cold: int = 0
    """Cold starts."""
    idle: int = 0
    """Replica-minutes that nobody needed."""
    evicted: int = 0
    trained: int = 0
    """Training jobs that ended."""

    @property
    def use(self) -> float:
        """Mean share of all GPUs that was kept busy."""
        return sum(self.busy.values()) / max(1, sum(self.minutes.values()))

    def use_of(self, kind: str) -> float:
        """Return the same where training of one class ran."""
        return self.busy.get(kind, 0.0) / max(1, self.minutes.get(kind, 0))

    @property
    def broken(self) -> float:
        """Part of training job-hours that lost more than their limit."""
        return self.job_hours_broken / max(1e-9, self.job_hours)

    @property
    def missed(self) -> float:
        """Part of the replica-minutes needed that missed their deadline."""
        return (self.unplaced + self.loading + self.slow) / max(1, self.needed)


def _readiest(replicas: Sequence[_Replica]) -> list[_Replica]:
    """Return replicas in the order in which they get requests."""
    return sorted(replicas, key=lambda one: one.ready_s)


def use_class(use: float | None) -> str:
    """Return the class of a training job by how busy it keeps a GPU alone."""
    if use is None:
        return "no training"
    return "light" if use < 0.4 else "medium" if use < 0.75 else "heavy"


class ColocationWorld:
    """Plays a scenario; where nobody decides about functions, they get no place."""

    def __init__(
        self, scenario: ColocationScenario, scheduler: FunctionScheduler | None = None
    ) -> None:
        self._scenario = scenario
        self._needs = scenario.needs
        self._scheduler = scheduler
        self._gpus = [GpuRef(MachineId(f"m{one}"), 0) for one in range(scenario.gpus)]
        self._rng = Random(scenario.seed + 1)
        self._queue: deque[Training] = deque()
        self._jobs: dict[GpuRef, _Job] = {}
        self._free = self._gpus[::-1]
        self._replicas: dict[int, _Replica] = {}
        self._of: list[list[_Replica]] = [[] for _ in scenario.functions]
        self._on: dict[GpuRef, list[_Replica]] = {gpu: [] for gpu in self._gpus}
        self._places = {one.id: place for place, one in enumerate(scenario.functions)}
        self._read: list[CoRunReading] = []
        """What is measured in this minute and learned from."""
        self._true: dict[tuple[str | None, tuple[str, ...]], tuple[float, list[float]]] = {}
        """Training and functions that run together -> how much slower each really is."""
        self.outcome = ColocationOutcome()

    def play(self) -> ColocationOutcome:
        """Play all minutes."""
        scenario = self._scenario
        shape = (scenario.gpu_type, 1, 0, 0, scenario.memory_mib)
        machines = tuple(Machine(gpu.machine, *shape) for gpu in self._gpus)
        self._tell(DevicesChanged(machines), 0.0)
        for one in scenario.functions:
            self._tell(FunctionDeployed(one, replicas_max=REPLICAS_MAX), 0.0)
        coming = deque(sorted(scenario.trainings, key=lambda one: one.minute))
        for minute, needs in enumerate(self._needs.tolist()):
            now_s = minute * MINUTE_S
            while coming and coming[0].minute <= minute:
                self._queue.append(coming.popleft())
            self._start_trainings(now_s)
            busy = self._serve(minute, needs, now_s)
            self._run_minute(minute, busy, now_s)
        return self.outcome

    def _start_trainings(self, now_s: float) -> None:
        held = {}
        while self._queue and self._free:
            training, gpu = self._queue.popleft(), self._free.pop()
            self._jobs[gpu] = _Job(training, training.work_s)
            workload = Workload(WorkloadKind.JOB, training.workload)
            job_id = JobId(f"{gpu.machine}/{now_s:g}")
            held[gpu] = (Held(job_id, workload, training.memory_mib, training.use),)
        if held:
            self._tell(JobsHeld(held), now_s)

    # -- functions --------------------------------------------------------------------

    def _tell(self, event: FunctionEvent, now_s: float, *, is_cold: bool = False) -> None:
        """Tell the scheduler, and carry out what it says; what leaves is gone at once."""
        if self._scheduler is None:
            return
        actions = self._scheduler.tell(event, now_s)
        while actions:
            ended = self._carried_out(actions, now_s, is_cold=is_cold)
            actions = self._scheduler.tell(ReplicasEnded(ended), now_s) if ended else ()

    def _carried_out(
        self, actions: Sequence[FunctionAction], now_s: float, *, is_cold: bool
    ) -> tuple[int, ...]:
        ended = []
        for action in actions:
            if isinstance(action, LoadReplica):
                self._load(action, now_s, is_cold=is_cold)
            elif isinstance(action, DropReplica):
                ended.append(action.replica)
                self._drop(action)
        return tuple(ended)

    def _load(self, action: LoadReplica, now_s: float, *, is_cold: bool) -> None:
        place, there = self._places[action.function], self._on[action.gpu]
        is_warm = any(one.place == place for one in there)
        load_s = 0.0 if is_warm else self._rng.choice(self._scenario.load_s)
        self.outcome.cold += is_cold and load_s > 0
        function = self._scenario.functions[place]
        replica = _Replica(action.replica, place, function, action.gpu, now_s + load_s, is_cold)
        self._replicas[action.replica] = replica
        self._of[place].append(replica)
        there.append(replica)

    def _drop(self, action: DropReplica) -> None:
        gone = self._replicas.pop(action.replica)
        self._of[gone.place].remove(gone)
        self._on[gone.gpu].remove(gone)
        self.outcome.evicted += action.why is DropReason.BOUND

    def _serve(self, minute: int, needs: list[int], now_s: float) -> set[int]:
        """Let functions be asked; return the replicas that have work."""
        self.outcome.needed += sum(needs)
        loaded = [one.number for one in self._replicas.values() if one.ready_s <= now_s]
        self._tell(ReplicasLoaded(tuple(loaded)), now_s)
        if minute:
            counts = self._scenario.counts[minute - 1].tolist()
            self._tell(SlotPassed(dict(zip(self._places, counts, strict=True))), now_s)
        busy = {
            one.number
            for place, needed in enumerate(needs)
            for one in _readiest(self._of[place])[:needed]
        }
        asked = frozenset(name for name, place in self._places.items() if needs[place])
        self._tell(ReplicasObserved(frozenset(busy), asked), now_s)
        missing = {
            name: needs[place] - len(self._of[place])
            for name, place in self._places.items()
            if needs[place] > len(self._of[place])
        }
        self._tell(ReplicasNeeded(missing), now_s, is_cold=True)
        return self._at_work(needs, now_s)

    def _at_work(self, needs: list[int], now_s: float) -> set[int]:
        """Return the replicas that have requests in this minute, and count what is missing."""
        busy = set()
        for replicas, needed in zip(self._of, needs, strict=True):
            self.outcome.unplaced += max(0, needed - len(replicas))
            self.outcome.idle += max(0, len(replicas) - needed)
            for replica in _readiest(replicas)[:needed]:
                busy.add(replica.number)
                loading = replica.loading(now_s)
                self.outcome.loading += 1.0 if replica.is_cold and loading else loading
        return busy

    # -- a minute ---------------------------------------------------------------------

    def _run_minute(self, minute: int, busy: set[int], now_s: float) -> None:
        outcome, end_s = self.outcome, now_s + MINUTE_S
        ended = {}
        for gpu in self._gpus:
            job = self._jobs.get(gpu)
            working = [one for one in self._on[gpu] if one.number in busy]
            training, each = self._speeds(job, working)
            used = sum(
                (1.0 - one.loading(now_s)) * one.function.use / slowed
                for one, slowed in zip(working, each, strict=True)
            )
            if job is not None:
                used += job.training.use / training
            kind = use_class(None if job is None else job.training.use)
            outcome.busy[kind] = outcome.busy.get(kind, 0.0) + min(1.0, used)
            outcome.minutes[kind] = outcome.minutes.get(kind, 0) + 1
            outcome.slow += sum(
                slowed > one.function.p99_limit and one.ready_s <= now_s
                for one, slowed in zip(working, each, strict=True)
            )
            if self._on[gpu]:
                learns = minute % LEARN_MINUTES == 0 and job is not None and bool(working)
                self._measure(gpu, job if learns else None, training, working, each, end_s)
            if job is not None and self._train(job, training):
                del self._jobs[gpu]
                self._free.append(gpu)
                ended[gpu] = ()
        if self._read:
            self._tell(CoRunsMeasured(tuple(self._read)), end_s)
            self._read.clear()
        if ended:
            self._tell(JobsHeld(ended), end_s)

    def _speeds(
        self, job: _Job | None, working: Sequence[_Replica]
    ) -> tuple[float, list[float]]:
        """Return how much slower training and each function at work really are."""
        if not working:
            return 1.0, []
        trainer = None if job is None else job.training.workload
        key = trainer, tuple(one.function.workload for one in working)
        found = self._true.get(key)
        if found is None:
            scenario, functions = self._scenario, [one.function for one in working]
            mode = next(iter(scenario.truth.modes))
            slowdowns = [
                scenario.truth.slowdown(
                    mode,
                    scenario.gpu_type,
                    trainer,
                    [*functions[:place], *functions[place + 1 :]],
                    one,
                )
                for place, one in enumerate(functions)
            ]
            found = self._true[key] = (
                slowdowns[-1].training,
                [slowdown.own for slowdown in slowdowns],
            )
        return found

    def _train(self, job: _Job, slow_down: float) -> bool:
        """Let a job train for a minute; tell whether it has ended."""
        job.left_s -= MINUTE_S / slow_down
        job.lost += 1.0 - 1.0 / slow_down
        job.minutes += 1
        ends = job.left_s <= 0
        if ends or job.minutes == HOUR_MINUTES:
            hours = job.minutes / HOUR_MINUTES
            self.outcome.job_hours += hours
            self.outcome.job_hours_broken += hours * (job.lost > LIMIT * job.minutes)
            job.lost, job.minutes = 0.0, 0
        self.outcome.trained += ends
        return ends

    def _measure(
        self,
        gpu: GpuRef,
        teaches: _Job | None,
        training: float,
        working: Sequence[_Replica],
        each: Sequence[float],
        now_s: float,
    ) -> None:
        """Tell what a monitor sees, with an error of its own."""
        off = 1.0 + NOISE * (2.0 * self._rng.random() - 1.0)
        if teaches is not None:
            trainer, gpu_type = teaches.training.workload, self._scenario.gpu_type
            names = tuple(one.function.workload for one in working)
            self._read.append(
                CoRunReading(gpu_type, SlowdownTarget.TRAINING, trainer, names, training / off)
            )
            if len(names) == 1:
                self._read.append(
                    CoRunReading(
                        gpu_type, SlowdownTarget.LATENCY, *names, (trainer,), each[0] / off
                    )
                )
        p99 = {one.number: 1.0 for one in self._on[gpu]} | {
            one.number: off * own for one, own in zip(working, each, strict=True)
        }
        self._tell(DeviceJudged(gpu, training * off, p99), now_s)
