"""Builders that speak like the sentence a test makes."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from interlane.kernel.ledger import Ledger
from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import EventLog, LogEvent
from interlane.model import (
    ANYWHERE,
    MILLI,
    Closeness,
    Cluster,
    Demand,
    Device,
    Job,
    JobId,
    Label,
    Machine,
    MachineId,
    Request,
    Submitted,
    Task,
    with_devices,
)
from interlane.policy import place
from interlane.policy.base import Order, Placer
from interlane.policy.order import Fifo
from interlane.policy.policy import Discipline, Policy
from interlane.policy.preempt import Preemption
from interlane.sim.engine import Simulator
from interlane.sim.world import World
from interlane.tables import AT_ASK, AT_INSTANCES, AT_MACHINE, AT_MASK, AT_WIDTH

MEMORY_MIB = 512 * 1024
GPU_MEMORY_MIB = 16 * 1024


def demand(
    *,
    gpus: int = 0,
    gpu_milli: int = MILLI,
    gpu_memory_mib: int = 0,
    cpus: float = 0,
    memory_mib: int = 0,
    types: Collection[str] = (),
    selects: Collection[Label] = (),
    tolerates: Collection[Label] = (),
) -> Demand:
    """Return what one instance needs; CPUs count in whole cores here."""
    return Demand(
        gpus,
        gpu_milli,
        gpu_memory_mib,
        round(cpus * MILLI),
        memory_mib,
        frozenset(types),
        frozenset(selects),
        frozenset(tolerates),
    )


def task(
    *,
    gpus: int = 0,
    gpu_milli: int = MILLI,
    gpu_memory_mib: int = 0,
    cpus: float = 0,
    memory_mib: int = 0,
    types: Collection[str] = (),
    selects: Collection[Label] = (),
    tolerates: Collection[Label] = (),
    instances: int = 1,
    at_least: int | None = None,
    same_machine: bool = False,
    role: str = "worker",
) -> Task:
    """Return one role of a job."""
    needs = demand(
        gpus=gpus,
        gpu_milli=gpu_milli,
        gpu_memory_mib=gpu_memory_mib,
        cpus=cpus,
        memory_mib=memory_mib,
        types=types,
        selects=selects,
        tolerates=tolerates,
    )
    return Task(needs, instances, at_least, same_machine, role)


def job(
    name: str = "a",
    *tasks: Task,
    gpus: int = 0,
    gpu_milli: int = MILLI,
    gpu_memory_mib: int = 0,
    cpus: float = 0,
    memory_mib: int = 0,
    types: Collection[str] = (),
    selects: Collection[Label] = (),
    tolerates: Collection[Label] = (),
    instances: int = 1,
    at_least: int | None = None,
    same_machine: bool = False,
    near: Closeness = ANYWHERE,
    at: float = 0.0,
    estimate: float | None = None,
    serial: int | None = None,
    user: str = "",
    queue: str = "",
    priority: int = 0,
    checkpoint_s: float = 0.0,
) -> Job:
    """Return a job: of the given tasks, or of one task that the keywords describe.

    Without a serial the name decides ties, in the order of the alphabet.
    """
    only = task(
        gpus=gpus,
        gpu_milli=gpu_milli,
        gpu_memory_mib=gpu_memory_mib,
        cpus=cpus,
        memory_mib=memory_mib,
        types=types,
        selects=selects,
        tolerates=tolerates,
        instances=instances,
        at_least=at_least,
        same_machine=same_machine,
    )
    if serial is None:
        serial = int.from_bytes(name.encode()[:6].ljust(6, b"\0"))
    return Job(
        JobId(name), Request(tasks or (only,), near), at, serial, estimate, user, queue,
        priority, checkpoint_s,
    )  # fmt: skip


def machine(
    name: str = "m0",
    *,
    gpus: int = 0,
    type: str = "T4",
    cpus: float = 96,
    memory_mib: int = MEMORY_MIB,
    gpu_memory_mib: int = GPU_MEMORY_MIB,
    pooled: bool = False,
    devices: Sequence[Device] = (),
    labels: Mapping[str, str] | None = None,
    taints: Collection[Label] = (),
) -> Machine:
    """Return a host with plenty of CPU and memory, unless said otherwise.

    With ``devices``, they are its GPUs.
    """
    found = tuple(sorted((labels or {}).items())), tuple(sorted(taints))
    if devices:
        return with_devices(
            MachineId(name),
            devices,
            cpu_milli=round(cpus * MILLI),
            memory_mib=memory_mib,
            labels=found[0],
            taints=found[1],
        )
    return Machine(
        MachineId(name), type, gpus, round(cpus * MILLI), memory_mib, gpu_memory_mib, pooled,
        (), *found,
    )  # fmt: skip


def cluster(
    *machines: Machine, gpus: Sequence[int] = (), levels: Sequence[str] = ()
) -> Cluster:
    """Return a cluster of these machines, or of one machine for every number of ``gpus``."""
    made = tuple(machine(f"m{number}", gpus=count) for number, count in enumerate(gpus))
    return Cluster("test", machines + made, topology=tuple(levels))


def pool(gpus: int, cpus: float = 1_000_000) -> Cluster:
    """Return a single machine that does not tell its GPUs apart."""
    return Cluster(
        "pool", (machine("pool", gpus=gpus, type=Ledger.wildcard, cpus=cpus, pooled=True),)
    )


def make(
    on: Cluster | None = None,
    *,
    gpus: int = 1,
    order: Order | None = None,
    placer: Placer | None = None,
    queue: Discipline = Discipline.SKIP,
    preemption: Preemption | None = None,
    seed: int = 0,
) -> Scheduler:
    """Return a scheduler: fifo and first-fit on one machine, unless said otherwise."""
    policy = Policy(
        order or Fifo(), placer or place.first_fit(), queue, preemption or Preemption()
    )
    return Scheduler(cluster(gpus=[gpus]) if on is None else on, policy, seed)


def submit(scheduler: Scheduler, *jobs: Job, now_s: float | None = None) -> None:
    """Let a scheduler learn of jobs, each at its own time, without deciding."""
    for each in jobs:
        scheduler.learn(Submitted(each), each.submitted_s if now_s is None else now_s)


def ledger_with(
    on: Cluster,
    used: Sequence[Sequence[int]] = (),
    *,
    cpus_used: Sequence[float] = (),
    gpu_memory_used: Sequence[Sequence[int]] = (),
    lost: Collection[int] = (),
) -> Ledger:
    """Return a ledger in which so many thousandths of each GPU are held already.

    ``used`` lists the GPUs of each machine in cluster order; a pooled machine has one entry,
    in thousandths of a GPU too.  Lists may be shorter than the cluster.
    """
    ledger = Ledger(on)
    for number, shares in enumerate(used):
        memory = gpu_memory_used[number] if number < len(gpu_memory_used) else ()
        for gpu, milli in enumerate(shares):
            if milli:
                _hold(ledger, number, gpu, milli, memory[gpu] if gpu < len(memory) else 0)
    for number, cpus in enumerate(cpus_used):
        _take(ledger, number, 0, demand(cpus=cpus), 1)
    for number in lost:
        ledger.set_up(number, up=False)
    return ledger


def _hold(ledger: Ledger, number: int, gpu: int, milli: int, memory_mib: int) -> None:
    if ledger.machine(number).pooled:
        _take(ledger, number, 0, Demand(1, 1), milli)
    else:
        _take(ledger, number, 1 << gpu, Demand(1, milli, memory_mib), 1)


def _take(ledger: Ledger, number: int, mask: int, needs: Demand, instances: int) -> None:
    profile = ledger.add_ask(needs, frozenset(), 1)
    row = np.zeros((1, AT_WIDTH), np.int64)
    row[0, AT_MACHINE] = number
    row[0, AT_MASK] = mask
    row[0, AT_INSTANCES] = instances
    row[0, AT_ASK] = profile
    assert ledger.hold_again(row), f"{needs} does not fit on machine {number}"


def play(
    jobs: Sequence[Job],
    true_s: Mapping[str, float] | Sequence[float] | float,
    scheduler: Scheduler,
    world: World | None = None,
) -> EventLog:
    """Simulate jobs with these true lengths, state checked after every moment.

    Lengths are given by name, one for every job, or one for all of them.
    """
    if isinstance(true_s, Mapping):
        lengths_s = [true_s[each.id] for each in jobs]
    else:
        lengths_s = [true_s] * len(jobs) if isinstance(true_s, float | int) else list(true_s)
    return Simulator(scheduler, jobs, lengths_s, world, paranoid=True).run()


def times(log: EventLog, event: LogEvent = LogEvent.STARTED) -> dict[str, list[float]]:
    """Return when an event happened to each job that it happened to."""
    found: dict[str, list[float]] = {}
    for line in log.lines():
        if line.kind is event:
            found.setdefault(log.jobs[line.subject].id, []).append(line.at_s)
    return found


def starts(log: EventLog) -> dict[str, float]:
    """Return when each job started first."""
    return {name: at_s[0] for name, at_s in times(log).items()}


def ends(log: EventLog) -> dict[str, float]:
    """Return when each job finished."""
    return {name: at_s[0] for name, at_s in times(log, LogEvent.FINISHED).items()}
