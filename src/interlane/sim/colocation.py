"""Training and functions on the same GPUs, minute by minute.

Training jobs take GPUs in the order they come.  Functions are asked; an advisor says before
each minute how many replicas they should have, and what it missed is a cold start.  Every
replica goes where a colocator says, loads its model first unless it is there already, and
leaves when it is not wanted any more.  How much everybody really slows down comes from measured
pairs, which the colocator has seen only in part; it is told what is measured as time goes on.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.functions.advise import Advisor
from interlane.model import GpuRef, MachineId, Refusal
from interlane.model.function import Function
from interlane.policy.colocate.gpus import LIMIT, ColocatedGpu, Gpus
from interlane.policy.colocate.place import Colocation, Colocator
from interlane.policy.colocate.slowdown import Slowdowns
from interlane.predict.slowdown.online import Online

MINUTE_S: Final = 60.0
HOUR_MINUTES: Final = 60
HERE: Final = MachineId("world")
LEARN_MINUTES: Final = 10
"""Minutes between measurements that a table learns from."""
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


@dataclass
class _Replica:
    function: Function
    gpu_id: GpuRef
    ready_s: float
    is_cold: bool
    """Whether a request called for it, instead of an advisor."""

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


@dataclass(frozen=True, eq=False)
class Scheduling:
    """Who decides about functions."""

    colocator: Colocator
    slowdowns: Slowdowns
    """The numbers it decides by."""
    advisor: Advisor
    online: Online | None = None
    """Keeps the table behind the numbers true, from what is measured."""
    evicts: bool = False
    """Whether a function goes again when measurements break a promise."""


class ColocationWorld:
    """Plays a scenario; where nobody decides about functions, they get no place."""

    def __init__(
        self, scenario: ColocationScenario, scheduling: Scheduling | None = None
    ) -> None:
        self._scenario = scenario
        self._needs = scenario.needs
        self._scheduling = scheduling
        gpus = [
            ColocatedGpu(GpuRef(HERE, number), scenario.gpu_type, scenario.memory_mib)
            for number in range(scenario.gpus)
        ]
        self._gpus = Gpus(gpus)
        self._colocation = Colocation(
            self._gpus,
            scheduling.colocator if scheduling else _Nowhere(),
            scheduling.slowdowns if scheduling else scenario.truth,
            rng=Random(scenario.seed),
        )
        self._rng = Random(scenario.seed + 1)
        self._queue: deque[Training] = deque()
        self._jobs: dict[GpuRef, _Job] = {}
        self._free = [gpu.id for gpu in reversed(gpus)]
        self._replicas: list[list[_Replica]] = [[] for _ in scenario.functions]
        self._by_id: dict[str, _Replica] = {}
        self._waiting: list[list[Function]] = [[] for _ in scenario.functions]
        self._serial = 0
        self._learns = False
        self._true: dict[tuple[str | None, tuple[str, ...]], tuple[float, list[float]]] = {}
        """Training and functions that run together -> how much slower each really is."""
        self.outcome = ColocationOutcome()

    def play(self) -> ColocationOutcome:
        """Play all minutes."""
        coming = deque(sorted(self._scenario.trainings, key=lambda one: one.minute))
        for minute, needs in enumerate(self._needs.tolist()):
            now_s = minute * MINUTE_S
            while coming and coming[0].minute <= minute:
                self._queue.append(coming.popleft())
            self._start_trainings(now_s)
            busy = self._serve(minute, needs, now_s)
            self._run_minute(busy, now_s)
        return self.outcome

    def _start_trainings(self, now_s: float) -> None:
        while self._queue and self._free:
            training, gpu_id = self._queue.popleft(), self._free.pop()
            self._jobs[gpu_id] = _Job(training, training.work_s)
            evicted = self._colocation.begin_training(
                gpu_id, training.workload, training.memory_mib, training.use, now_s
            )
            for function in evicted:
                self._send_back(function)

    # -- functions --------------------------------------------------------------------

    def _serve(self, minute: int, needs: list[int], now_s: float) -> set[str]:
        """Bring replicas in, ahead and as requests call; return those that have work."""
        self.outcome.needed += sum(needs)
        if self._scheduling is None:
            self.outcome.unplaced += sum(needs)
            return set()
        self._learns = self._scheduling.online is not None and minute % LEARN_MINUTES == 0
        if self._learns:
            self._scheduling.slowdowns.forget()
        advisor = self._scheduling.advisor
        self._scale([int(one) for one in advisor.wanted()], now_s)
        self._place_waiting(now_s, {})
        self._call(needs)
        idle = self._idle(needs) if self._scheduling.evicts else {}
        self._place_waiting(now_s, idle, is_cold=True)
        advisor.passed(self._scenario.counts[minute], self._needs[minute].astype(float))
        return self._at_work(needs, now_s)

    def _scale(self, wanted: list[int], now_s: float) -> None:
        """Send replicas away that are not wanted any more, and queue those that are."""
        for number, replicas in enumerate(self._replicas):
            while len(replicas) > wanted[number]:
                self._send_away(number, now_s)
        self._waiting = [[] for _ in self._waiting]
        self._call(wanted)

    def _call(self, wanted: list[int]) -> None:
        """Queue the replicas that are missing."""
        for number, waiting in enumerate(self._waiting):
            missing = wanted[number] - len(self._replicas[number]) - len(waiting)
            waiting.extend(self._replica_of(number) for _ in range(missing))

    def _replica_of(self, number: int) -> Function:
        self._serial += 1
        return replace(self._scenario.functions[number], id=f"{number}/{self._serial}")

    def _idle(self, needs: list[int]) -> dict[str, GpuRef]:
        """Return the replicas that have no requests in this minute, and their GPUs."""
        return {
            one.function.id: one.gpu_id
            for replicas, needed in zip(self._replicas, needs, strict=True)
            for one in _readiest(replicas)[needed:]
        }

    def _place_waiting(
        self, now_s: float, idle: dict[str, GpuRef], *, is_cold: bool = False
    ) -> None:
        colocator = self._colocation.colocator
        order = sorted(
            (number for number, waiting in enumerate(self._waiting) if waiting),
            key=lambda number: -colocator.priority(self._waiting[number][0], self._gpus),
        )
        left = sum(map(len, self._waiting))
        for number in order:
            again: list[Function] = []
            for function in self._waiting[number]:
                left -= 1
                site = self._colocation.place(function, left, now_s, idle)
                if isinstance(site, Refusal):
                    again.append(function)
                    continue
                for one in site.instead:
                    self._send_back(one)
                    del idle[one.id]
                load_s = 0.0 if site.is_warm else self._rng.choice(self._scenario.load_s)
                self.outcome.cold += is_cold and load_s > 0
                replica = _Replica(function, site.gpu.id, now_s + load_s, is_cold)
                self._replicas[number].append(replica)
                self._by_id[function.id] = replica
            self._waiting[number] = again

    def _send_away(self, number: int, now_s: float) -> None:
        gone = self._replicas[number].pop()
        del self._by_id[gone.function.id]
        self._colocation.leave(gone.function, gone.gpu_id, now_s)

    def _send_back(self, function: Function) -> None:
        number = int(function.id.split("/")[0])
        self._replicas[number].remove(self._by_id.pop(function.id))

    def _at_work(self, needs: list[int], now_s: float) -> set[str]:
        """Return the replicas that have requests in this minute, and count what is missing."""
        busy = set()
        for replicas, needed in zip(self._replicas, needs, strict=True):
            self.outcome.unplaced += max(0, needed - len(replicas))
            self.outcome.idle += max(0, len(replicas) - needed)
            for replica in _readiest(replicas)[:needed]:
                busy.add(replica.function.id)
                self._count_loading(replica, now_s)
        return busy

    def _count_loading(self, replica: _Replica, now_s: float) -> None:
        loading = replica.loading(now_s)
        self.outcome.loading += 1.0 if replica.is_cold and loading else loading

    # -- a minute ---------------------------------------------------------------------

    def _run_minute(self, busy: set[str], now_s: float) -> None:
        outcome = self.outcome
        for gpu in self._gpus.order:
            job = self._jobs.get(gpu.id)
            working = [one for one in gpu.functions if one.id in busy]
            training, each = self._speeds(gpu, job, working)
            used = self._used(working, each, now_s)
            if job is not None:
                used += job.training.use / training
            kind = use_class(None if job is None else job.training.use)
            outcome.busy[kind] = outcome.busy.get(kind, 0.0) + min(1.0, used)
            outcome.minutes[kind] = outcome.minutes.get(kind, 0) + 1
            outcome.slow += self._too_slow(working, each, now_s)
            if gpu.functions:
                self._measure(gpu, training, working, each, now_s)
            if job is not None:
                self._train(gpu.id, job, training, now_s)

    def _speeds(
        self, gpu: ColocatedGpu, job: _Job | None, working: Sequence[Function]
    ) -> tuple[float, list[float]]:
        """Return how much slower training and each function at work really are."""
        if not working:
            return 1.0, []
        trainer = None if job is None else job.training.workload
        key = trainer, tuple(one.workload for one in working)
        found = self._true.get(key)
        if found is None:
            slowdowns = [
                self._scenario.truth.slowdown(
                    self._mode,
                    gpu.gpu_type,
                    trainer,
                    [*working[:place], *working[place + 1 :]],
                    one,
                )
                for place, one in enumerate(working)
            ]
            found = self._true[key] = (
                slowdowns[-1].training,
                [slowdown.own for slowdown in slowdowns],
            )
        return found

    def _used(self, working: Sequence[Function], each: Sequence[float], now_s: float) -> float:
        """Return the share of a GPU that functions keep busy; what loads does no work."""
        return sum(
            (1.0 - self._by_id[one.id].loading(now_s)) * one.use / slowed
            for one, slowed in zip(working, each, strict=True)
        )

    def _too_slow(
        self, working: Sequence[Function], each: Sequence[float], now_s: float
    ) -> int:
        """Count the functions that serve, but more slowly than they may."""
        return sum(
            slowed > one.p99_limit and self._by_id[one.id].ready_s <= now_s
            for one, slowed in zip(working, each, strict=True)
        )

    @property
    def _mode(self) -> str:
        return next(iter(self._scenario.truth.modes))

    def _train(self, gpu_id: GpuRef, job: _Job, slow_down: float, now_s: float) -> None:
        job.left_s -= MINUTE_S / slow_down
        job.lost += 1.0 - 1.0 / slow_down
        job.minutes += 1
        ends = job.left_s <= 0
        if ends or job.minutes == HOUR_MINUTES:
            hours = job.minutes / HOUR_MINUTES
            self.outcome.job_hours += hours
            self.outcome.job_hours_broken += hours * (job.lost > LIMIT * job.minutes)
            job.lost, job.minutes = 0.0, 0
        if ends:
            self.outcome.trained += 1
            del self._jobs[gpu_id]
            self._free.append(gpu_id)
            training = job.training
            self._colocation.end_training(gpu_id, training.memory_mib, training.use, now_s)

    def _measure(
        self,
        gpu: ColocatedGpu,
        training: float,
        working: Sequence[Function],
        each: Sequence[float],
        now_s: float,
    ) -> None:
        """Tell what a monitor sees, with an error of its own."""
        assert self._scheduling is not None
        off = 1.0 + NOISE * (2.0 * self._rng.random() - 1.0)
        if self._learns and gpu.trainer is not None and working:
            self._learn(gpu, working, off / training, off / each[0], now_s)
        if not self._scheduling.evicts:
            return
        slowed = {one.id: off * own for one, own in zip(working, each, strict=True)}
        p99 = [slowed.get(one.id, 1.0) for one in gpu.functions]
        gone = self._colocation.measured(gpu.id, training * off, p99, now_s)
        if gone is not None:
            self.outcome.evicted += 1
            self._send_back(gone)

    def _learn(
        self,
        gpu: ColocatedGpu,
        working: Sequence[Function],
        trained: float,
        served: float,
        now_s: float,
    ) -> None:
        """Add what was measured to the tables by which functions are placed."""
        assert self._scheduling is not None
        assert self._scheduling.online is not None
        assert gpu.trainer is not None
        if len(working) > 1:
            names = [one.workload for one in working]
            self._scheduling.slowdowns.learn(
                self._mode, gpu.gpu_type, gpu.trainer, names, 1.0 / trained
            )
            return
        online = self._scheduling.online
        table = online.table
        there, trainer = table.gpu(gpu.gpu_type), table.workload(gpu.trainer)
        function = table.workload(working[0].workload)
        online.learn(there, trainer, function, trained, now_s)
        online.learn(there, function, trainer, served, now_s)


class _Nowhere:
    """Functions get no place: GPUs belong to training alone."""

    def priority(self, function: Function, gpus: Gpus) -> float:
        return 0.0

    def place(
        self, function: Function, gpus: Gpus, waiting: int, now_s: float, rng: Random
    ) -> Refusal:
        raise AssertionError("nobody asks where functions go")
