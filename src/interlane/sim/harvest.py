"""Training and functions on the same GPUs, minute by minute.

Training jobs take GPUs in the order they come.  Functions want so many replicas in every
minute; each goes where a colocator says, loads its model first unless it is there already,
and leaves when fewer are wanted.  How much everybody really slows down comes from measured
pairs, which the colocator has seen only in part; it is told what is measured as time goes on.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import Refusal
from interlane.model.function import Function
from interlane.policy.colocate.gpus import LIMIT, Gpu, Gpus
from interlane.policy.colocate.place import Colocator, Harvest
from interlane.policy.colocate.slowdown import Tolls
from interlane.predict.degradation.online import Online

MINUTE_S: Final = 60.0
HOUR_MINUTES: Final = 60
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
    """When it is handed in."""
    work_s: float
    """How long it takes alone."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """All that happens, whoever decides."""

    gpus: int
    gpu_type: str
    memory_mib: int
    trainings: tuple[Training, ...]
    functions: tuple[Function, ...]
    """One replica of each function; ids are made unique as replicas come."""
    replicas: NDArray[np.int64]
    """Replicas wanted, minute x function."""
    load_s: tuple[float, ...]
    """Times that loading a model took, drawn from."""
    truth: Tolls
    """How much everybody really slows down."""
    seed: int = 0


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
    gpu_id: str
    ready_s: float


@dataclass
class Outcome:
    """What came of it."""

    busy: dict[str, float] = field(default_factory=dict)
    """Class of training use -> GPU-minutes kept busy."""
    minutes: dict[str, int] = field(default_factory=dict)
    """Class -> GPU-minutes."""
    job_hours: float = 0.0
    """Hours of training, each judged by itself; the last of a job may be a part of one."""
    job_hours_broken: float = 0.0
    """Those in which the job lost more than its limit."""
    wanted: int = 0
    """Replica-minutes wanted."""
    unplaced: int = 0
    loading: int = 0
    slow: int = 0
    """Replica-minutes in which a function was slower than its limit."""
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
        """Part of replica-minutes that missed their deadline."""
        return (self.unplaced + self.loading + self.slow) / max(1, self.wanted)


def use_class(use: float | None) -> str:
    """Return the class of a training job by how busy it keeps a GPU alone."""
    if use is None:
        return "no training"
    return "light" if use < 0.4 else "medium" if use < 0.75 else "heavy"


class World:
    """Plays a scenario; without a colocator functions get no place."""

    def __init__(
        self,
        scenario: Scenario,
        colocator: Colocator | None = None,
        tolls: Tolls | None = None,
        *,
        online: Online | None = None,
        evicts: bool = False,
    ) -> None:
        self._scenario = scenario
        gpus = [
            Gpu(f"gpu-{number}", scenario.gpu_type, scenario.memory_mib)
            for number in range(scenario.gpus)
        ]
        self._gpus = Gpus(gpus)
        self._harvest = Harvest(
            self._gpus,
            colocator or _Nowhere(),
            tolls or scenario.truth,
            dice=Random(scenario.seed),
        )
        self._tolls, self._online, self._evicts = tolls, online, evicts
        self._places = colocator is not None
        self._dice = Random(scenario.seed + 1)
        self._queue: deque[Training] = deque()
        self._jobs: dict[str, _Job] = {}
        self._free = [gpu.id for gpu in reversed(gpus)]
        self._replicas: list[list[_Replica]] = [[] for _ in scenario.functions]
        self._by_id: dict[str, _Replica] = {}
        self._waiting: list[list[Function]] = [[] for _ in scenario.functions]
        self._serial = 0
        self._learns = False
        self.outcome = Outcome()

    def play(self) -> Outcome:
        """Play all minutes."""
        coming = deque(sorted(self._scenario.trainings, key=lambda one: one.minute))
        for minute in range(len(self._scenario.replicas)):
            now_s = minute * MINUTE_S
            while coming and coming[0].minute <= minute:
                self._queue.append(coming.popleft())
            self._learns = self._online is not None and minute % LEARN_MINUTES == 0
            if self._learns and self._tolls is not None:
                self._tolls.forget()
            self._start_trainings(now_s)
            if self._places:
                self._scale(minute, now_s)
                self._place_waiting(now_s)
            self._run_minute(minute, now_s)
        return self.outcome

    def _start_trainings(self, now_s: float) -> None:
        while self._queue and self._free:
            training, gpu_id = self._queue.popleft(), self._free.pop()
            self._jobs[gpu_id] = _Job(training, training.work_s)
            evicted = self._harvest.begin_training(
                gpu_id, training.workload, training.memory_mib, training.use, now_s
            )
            for function in evicted:
                self._send_back(function)

    # -- functions --------------------------------------------------------------------

    def _scale(self, minute: int, now_s: float) -> None:
        """Send replicas away that are not wanted any more, and queue those that are."""
        wanted = self._scenario.replicas[minute].tolist()
        for number, (replicas, waiting) in enumerate(
            zip(self._replicas, self._waiting, strict=True)
        ):
            while waiting and len(replicas) + len(waiting) > wanted[number]:
                waiting.pop()
            while len(replicas) > wanted[number]:
                gone = replicas.pop()
                del self._by_id[gone.function.id]
                self._harvest.leave(gone.function, gone.gpu_id, now_s)
            for _ in range(wanted[number] - len(replicas) - len(waiting)):
                waiting.append(self._replica_of(number))

    def _replica_of(self, number: int) -> Function:
        self._serial += 1
        one = self._scenario.functions[number]
        return Function(
            f"{number}/{self._serial}",
            one.workload,
            one.memory_mib,
            one.use,
            one.p99_limit,
            one.stay_s,
        )

    def _place_waiting(self, now_s: float) -> None:
        colocator = self._harvest.colocator
        order = sorted(
            (number for number, waiting in enumerate(self._waiting) if waiting),
            key=lambda number: -colocator.priority(self._waiting[number][0], self._gpus),
        )
        left = sum(map(len, self._waiting))
        for number in order:
            again: list[Function] = []
            for function in self._waiting[number]:
                left -= 1
                site = self._harvest.place(function, left, now_s)
                if isinstance(site, Refusal):
                    again.append(function)
                    continue
                load_s = 0.0 if site.is_warm else self._dice.choice(self._scenario.load_s)
                replica = _Replica(function, site.gpu.id, now_s + load_s)
                self._replicas[number].append(replica)
                self._by_id[function.id] = replica
            self._waiting[number] = again

    def _send_back(self, function: Function) -> None:
        number = int(function.id.split("/")[0])
        self._replicas[number].remove(self._by_id.pop(function.id))
        self._waiting[number].append(function)

    # -- a minute ---------------------------------------------------------------------

    def _run_minute(self, minute: int, now_s: float) -> None:
        outcome = self.outcome
        outcome.wanted += int(self._scenario.replicas[minute].sum())
        outcome.unplaced += int(self._scenario.replicas[minute].sum()) - len(self._by_id)
        for gpu in self._gpus.order:
            job = self._jobs.get(gpu.id)
            training, functions = self._speeds(gpu, job, now_s)
            busy = sum(
                one.use / slowed for one, slowed in zip(gpu.functions, functions, strict=True)
            )
            if job is not None:
                busy += job.training.use / training
                self._train(gpu.id, job, training, now_s)
            kind = use_class(None if job is None else job.training.use)
            outcome.busy[kind] = outcome.busy.get(kind, 0.0) + min(1.0, busy)
            outcome.minutes[kind] = outcome.minutes.get(kind, 0) + 1
            if gpu.functions:
                self._measure(gpu, training, functions, now_s)

    def _speeds(self, gpu: Gpu, job: _Job | None, now_s: float) -> tuple[float, list[float]]:
        """Return how much slower training and each function really are."""
        training, each = 1.0, []
        trainer = None if job is None else job.training.workload
        for place, function in enumerate(gpu.functions):
            others = gpu.functions[:place] + gpu.functions[place + 1 :]
            toll = self._scenario.truth.toll(
                self._mode, gpu.gpu_type, trainer, others, function
            )
            training = toll.training
            each.append(toll.own)
            if self._by_id[function.id].ready_s > now_s:
                self.outcome.loading += 1
            elif toll.own > function.p99_limit:
                self.outcome.slow += 1
        return training, each

    @property
    def _mode(self) -> str:
        return next(iter(self._scenario.truth.modes))

    def _train(self, gpu_id: str, job: _Job, slow_down: float, now_s: float) -> None:
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
            self._harvest.end_training(gpu_id, training.memory_mib, training.use, now_s)

    def _measure(
        self, gpu: Gpu, training: float, functions: Sequence[float], now_s: float
    ) -> None:
        """Tell what a monitor sees, with an error of its own."""
        off = 1.0 + NOISE * (2.0 * self._dice.random() - 1.0)
        if self._learns and gpu.trainer is not None:
            if len(gpu.functions) == 1:
                self._learn(gpu, off / training, off / functions[0], now_s)
            elif self._tolls is not None:
                names = [one.workload for one in gpu.functions]
                self._tolls.learn(self._mode, gpu.gpu_type, gpu.trainer, names, training * off)
        if not self._evicts:
            return
        gone = self._harvest.measured(
            gpu.id, training * off, [one * off for one in functions], now_s
        )
        if gone is not None:
            self.outcome.evicted += 1
            self._send_back(gone)

    def _learn(self, gpu: Gpu, trained: float, served: float, now_s: float) -> None:
        """Add a measured pair to the table by which functions are placed."""
        assert self._online is not None
        assert gpu.trainer is not None
        table = self._online.table
        there, trainer = table.gpu(gpu.gpu_type), table.workload(gpu.trainer)
        function = table.workload(gpu.functions[0].workload)
        self._online.learn(there, trainer, function, trained, now_s)
        self._online.learn(there, function, trainer, served, now_s)


class _Nowhere:
    """Functions get no place: GPUs belong to training alone."""

    def priority(self, function: Function, gpus: Gpus) -> float:
        return 0.0

    def place(
        self, function: Function, gpus: Gpus, waiting: int, now_s: float, dice: Random
    ) -> Refusal:
        raise AssertionError("nobody asks where functions go")
