"""Random clusters, books, demands, jobs and traces for property tests.

Uniformly random states are bland: they almost never leave two GPUs empty or a machine full,
and faults hide there.  Empty and full are therefore drawn most often.
"""

from dataclasses import replace

from hypothesis import strategies as st

from interlane.kernel.ledger import Ledger
from interlane.model import (
    Cluster,
    Demand,
    Device,
    Job,
    JobId,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineEvent,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    Request,
    TakenGpu,
    Task,
    with_devices,
)
from interlane.testing.build import GPU_MEMORY_MIB, ledger_with
from interlane.traces.cluster_file import ClusterScenario
from interlane.traces.machine_events import TimedEvent

TYPES = ("T4", "V100", "A10")

_SHARE = st.sampled_from([1000, 1000, 1000, 500, 250, 300, 700, 100, 1])
TAINT = ("dedicated", "lab")
"""The taint that some machines have."""
LEVELS = ("zone", "rack")

_DEVICE = st.builds(
    Device,
    st.sampled_from(TYPES),
    st.sampled_from([GPU_MEMORY_MIB, GPU_MEMORY_MIB, 8_192, 0]),
    st.sampled_from([1000, 1000, 1000, 500, 0]),
)
_USED = st.sampled_from([0, 0, 0, 0, 1000, 1000, 500, 250, 750, 999])


@st.composite
def machines(
    draw: st.DrawFn, number: int = 0, *, pools: bool = True, racks: int = 2
) -> Machine:
    """Draw a host: with GPUs or without, its GPUs told apart or pooled, alike or not.

    Some have labels and taints; racks are numbered, and each is in one zone.
    """
    pooled = pools and draw(st.sampled_from([False, False, False, True]))
    gpus = draw(st.sampled_from([0, 1, 2, 2, 4, 8] if not pooled else [1, 3, 20]))
    kind = draw(st.sampled_from(TYPES)) if gpus else "CPU"
    if pooled and draw(st.booleans()):
        kind = Ledger.wildcard
    rack = draw(st.one_of(st.none(), st.integers(0, racks - 1)))
    places = () if rack is None else (("rack", f"r{rack}"), ("zone", f"z{rack % 2}"))
    taints = draw(st.sampled_from([(), (), (), (), (TAINT,)]))
    name = MachineId(f"m{number}")
    cpu_milli = draw(st.sampled_from([2_000, 8_000, 96_000]))
    memory_mib = draw(st.sampled_from([1_024, 8_192, 524_288]))
    if gpus and not pooled and draw(st.integers(0, 3)) == 0:
        devices = draw(st.lists(_DEVICE, min_size=gpus, max_size=gpus))
        return with_devices(
            name, devices, cpu_milli=cpu_milli, memory_mib=memory_mib, labels=places,
            taints=taints,
        )  # fmt: skip
    return Machine(
        name, kind, gpus, cpu_milli, memory_mib, GPU_MEMORY_MIB if gpus else 0, pooled, (),
        places, taints,
    )  # fmt: skip


@st.composite
def clusters(draw: st.DrawFn, *, most: int = 5, pools: bool = True) -> Cluster:
    """Draw a few machines."""
    count = draw(st.integers(1, most))
    drawn = tuple(draw(machines(n, pools=pools)) for n in range(count))
    return Cluster("drawn", drawn, topology=LEVELS)


@st.composite
def ledgers(draw: st.DrawFn, *, most: int = 5, pools: bool = True) -> Ledger:
    """Draw a cluster of which some is in use; empty and full are common."""
    on = draw(clusters(most=most, pools=pools))
    bare = draw(st.integers(0, 3)) == 0
    if bare:
        return ledger_with(on)
    used, memory, cpus = [], [], []
    for machine in on:
        if machine.pooled:
            shares = [draw(_USED) * machine.gpus]
        else:
            devices = [machine.device(gpu) for gpu in range(machine.gpus)]
            shares = [min(draw(_USED), device.compute_milli) for device in devices]
        used.append(shares)
        memory.append(
            [
                min(
                    share * draw(st.sampled_from([0, 0, 8, 16])), machine.device(gpu).memory_mib
                )
                for gpu, share in enumerate(shares)
            ]
        )
        cpus.append(machine.cpu_milli / 1000 * draw(st.sampled_from([0, 0, 0, 0.5, 1])))
    lost = [n for n in range(len(on)) if draw(st.integers(0, 9)) == 9]
    return ledger_with(on, used, cpus_used=cpus, gpu_memory_used=memory, lost=lost)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """Draw what one instance needs: shares, several shares, whole GPUs, or none."""
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4]))
    return Demand(
        gpus,
        draw(_SHARE) if gpus else 1000,
        draw(st.sampled_from([0, 0, 0, 1_024, 8_192, GPU_MEMORY_MIB])) if gpus else 0,
        draw(st.sampled_from([0, 0, 500, 1_000, 4_000])) if gpus else 1_000,
        draw(st.sampled_from([0, 0, 512, 4_096])),
        draw(st.sampled_from([frozenset(), frozenset(), frozenset({"V100"}),
                              frozenset({"T4", "A10"}), frozenset({"H100"})]))
        if gpus else frozenset(),
        draw(st.sampled_from([frozenset()] * 7 + [frozenset({("rack", "r1")})])),
        draw(st.sampled_from([frozenset(), frozenset({TAINT})])),
    )  # fmt: skip


@st.composite
def tasks(draw: st.DrawFn, *, most: int = 6) -> Task:
    """Draw one role: alone, a gang, an elastic gang, or a gang on one machine."""
    instances = draw(st.sampled_from([1, 1, 2, 3, most]))
    least = draw(st.one_of(st.none(), st.none(), st.integers(1, instances)))
    together = instances > 1 and draw(st.integers(0, 3)) == 0
    return Task(draw(demands()), instances, least, together)


@st.composite
def requests(draw: st.DrawFn, *, roles: int = 3) -> Request:
    """Draw one to three roles; one is the most common."""
    count = draw(st.sampled_from([1, 1, 1, min(2, roles), roles]))
    return Request(
        tuple(replace(draw(tasks()), role=f"role-{number}") for number in range(count))
    )


@st.composite
def jobs(draw: st.DrawFn, number: int = 0, *, at_s: float = 0.0) -> Job:
    """Draw a job."""
    return Job(
        JobId(f"j{number}"),
        draw(requests()),
        at_s,
        number,
        draw(st.one_of(st.none(), st.integers(0, 500).map(float))),
        draw(st.sampled_from(["ann", "bob"])),
        draw(st.sampled_from(["prod", "test"])),
        draw(st.integers(-1, 2)),
        draw(st.sampled_from([0.0, 0.0, 10.0])),
    )


def several_jobs(*, most: int = 5) -> st.SearchStrategy[list[Job]]:
    """Draw a few jobs, each with a serial and a name of its own."""
    return st.integers(1, most).flatmap(
        lambda count: st.tuples(*(jobs(number) for number in range(count))).map(list)
    )


@st.composite
def traces(
    draw: st.DrawFn, *, most: int = 14, gap_s: int = 30, exact: bool = False
) -> tuple[list[Job], list[float]]:
    """Draw jobs in order of arrival, often in the same moment, and their true lengths.

    Requests repeat, as they do in life.  With ``exact`` every estimate is the truth.
    """
    shapes = draw(st.lists(requests(), min_size=1, max_size=4))
    now_s, made, true_s = 0.0, [], []
    for number in range(draw(st.integers(0, most))):
        now_s += draw(st.sampled_from([0, 0, 0, 1, gap_s // 3, gap_s]))
        length_s = float(draw(st.sampled_from([0, 1, 5, 20, 60, 61, 300])))
        drawn = draw(jobs(number, at_s=now_s))
        estimate_s = length_s if exact else drawn.duration_s_estimate
        shape = draw(st.sampled_from(shapes))
        made.append(replace(drawn, request=shape, duration_s_estimate=estimate_s))
        true_s.append(length_s)
    return made, true_s


@st.composite
def gang_traces(draw: st.DrawFn, *, most: int = 10) -> tuple[list[Job], list[float]]:
    """Draw gangs, most of them elastic, that compete for a few whole GPUs.

    Requests of all kinds seldom meet on the same GPUs; these always do, so that there is
    somebody to grow and somebody who waits.
    """
    now_s, made, true_s = 0.0, [], []
    for number in range(draw(st.integers(2, most))):
        now_s += draw(st.sampled_from([0, 1, 3, 10]))
        instances = draw(st.integers(1, 5))
        least = draw(st.one_of(st.none(), st.integers(1, instances), st.just(1)))
        gang = Task(Demand(draw(st.sampled_from([1, 1, 1, 2]))), instances, least)
        drawn = draw(jobs(number, at_s=now_s))
        length_s = float(draw(st.sampled_from([1, 4, 10, 25])))
        made.append(replace(drawn, request=Request((gang,)), duration_s_estimate=length_s))
        true_s.append(length_s)
    return made, true_s


# -- machines that come, change and go ----------------------------------------------------


@st.composite
def scenarios(draw: st.DrawFn, *, most: int = 4, events: int = 8) -> ClusterScenario:
    """Draw a labelled cluster and what happens to its machines; one of them always stays."""
    count = draw(st.integers(1, most))
    made = tuple(draw(machines(number, pools=False)) for number in range(count))
    there = {machine.id: machine for machine in made}
    lost: set[MachineId] = set()
    drained: set[MachineId] = set()
    timed, now_s = [], 0.0
    for _ in range(draw(st.integers(0, events))):
        now_s += draw(st.sampled_from([0, 1, 7, 20, 60]))
        event = draw(_events(there, lost, drained))
        timed.append(TimedEvent(now_s, event))
    levels = tuple(one for one in LEVELS if any(machine.label(one) for machine in made))
    return ClusterScenario(Cluster("drawn", made, topology=levels), tuple(timed))


@st.composite
def _events(
    draw: st.DrawFn,
    there: dict[MachineId, Machine],
    lost: set[MachineId],
    drained: set[MachineId],
) -> MachineEvent:
    """Draw what may happen to the machines that are there, and note it."""
    machine = there[draw(st.sampled_from(sorted(there)))]
    who = machine.id
    verb = draw(
        st.sampled_from(["join", "change", "leave", "lose", "drain", "occupy", "device"])
    )
    if verb == "lose":
        away = who in lost
        (lost.discard if away else lost.add)(who)
        return MachineReturned(who) if away else MachineLost(who)
    if verb == "drain":
        closed = who in drained
        (drained.discard if closed else drained.add)(who)
        return MachineUndrained(who) if closed else MachineDrained(who)
    if verb == "occupy":
        return Occupied(who, machine.cpu_milli // 2, 0, draw(_taken(machine)))
    if verb == "leave" and len(there) > 1:
        for known in (lost, drained):
            known.discard(who)
        del there[who]
        return MachineLeft(who)
    if verb in ("join", "leave"):
        number = next(n for n in range(99) if f"m{n}" not in there)
        new = draw(machines(number, pools=False))
        there[new.id] = new
        return MachineJoined(new)
    changed = draw(machines(int(who[1:]), pools=False))
    there[who] = changed if verb == "change" else _with_a_loss(machine)
    return MachineChanged(there[who])


@st.composite
def _taken(draw: st.DrawFn, machine: Machine) -> tuple[TakenGpu, ...]:
    devices = [(n, machine.device(n)) for n in range(machine.gpus) if draw(st.booleans())]
    return tuple(TakenGpu(n, one.compute_milli // 2, one.memory_mib // 2) for n, one in devices)


def _with_a_loss(machine: Machine) -> Machine:
    devices = [machine.device(number) for number in range(machine.gpus)]
    lost = [replace(one, compute_milli=0) for one in devices[:1]]
    return with_devices(
        machine.id,
        lost + devices[1:],
        cpu_milli=machine.cpu_milli,
        memory_mib=machine.memory_mib,
        labels=machine.labels,
        taints=machine.taints,
    )
