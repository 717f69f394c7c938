"""Where replicas go, and when they must leave: jobs never do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.live.files.job import read_spec
from interlane.live.functions.colocation import (
    Allocator,
    Held,
    Holdings,
    MeasuredSlot,
    holdings_of,
)
from interlane.live.functions.replicas import ReplicaPlace
from interlane.live.functions.services import Place, Slowed
from interlane.live.measure.coruns import (
    BESIDE,
    LATENCY,
    P99,
    CoRun,
    function_workload,
    job_workload,
)
from interlane.live.store.record import JobRecord
from interlane.model import (
    Cluster,
    GpuRef,
    JobId,
    Machine,
    MachineId,
    Placement,
    Refusal,
    Spot,
    Workload,
    with_devices,
)
from interlane.model import Device as Card
from interlane.model.lifecycle import JobState
from interlane.testing.live import snapshot_of, this_machine

CARD_MIB = 16_384
FIRST, SECOND = (GpuRef(MachineId("here"), number) for number in range(2))
TRAIN_1 = JobId("train-1")
HOUR_S = 3_600.0
"""In which a job saves up enough to bear several functions."""
F, G = function_workload("f"), function_workload("g")
TRAIN = job_workload("train")


class OneMachine(Allocator):
    """A lender of one machine's devices, and short ways to ask it."""

    def __init__(self, gpus: int = 1) -> None:
        super().__init__()
        self.machines = this_machine(gpus).machines
        self.hold({}, 0.0)

    def hold(self, holdings: Holdings, now_s: float) -> list[str]:
        return self.follow(self.machines, holdings, now_s)

    def ask(
        self, name: str = "f", number: int = 1, memory_mib: int = 4_096, *, at_s: float = 0.0
    ) -> ReplicaPlace | Refusal:
        workload = function_workload(name)
        return self.lend(
            f"{name}/{number}", workload, memory_mib, at_s, p99_limit=2.0, waiting=0
        )


def held(memory_mib: int = 8_192, *jobs: str) -> dict[GpuRef, tuple[Held, ...]]:
    return {
        FIRST: tuple(
            Held(JobId(job), job_workload(job.partition("-")[0]), memory_mib, 0.5)
            for job in jobs or ("train-1",)
        )
    }


def suffers(p99: float, *jobs: str, calls: int = 1_000, limit: float = 2.0) -> Slowed:
    return Slowed(frozenset(map(JobId, jobs or ("train-1",))), calls, 0.01, p99 / 2, p99, limit)


def slot(
    jobs: dict[str, float] | None = None,
    called: tuple[Workload, ...] = (F,),
    **functions: Slowed,
) -> MeasuredSlot:
    return MeasuredSlot(
        {JobId(job): slower for job, slower in (jobs or {}).items()},
        {Place(function_workload(name), FIRST): one for name, one in functions.items()},
        frozenset(Place(one, FIRST) for one in called),
    )


def lent(found: ReplicaPlace | Refusal) -> ReplicaPlace:
    assert isinstance(found, ReplicaPlace)
    return found


def record(**share: object) -> JobRecord:
    spec = {
        "name": "train",
        "run": "true",
        "resources": {"gpu": {"count": 1, **({} if share else {"memory": "4GiB"})}},
        "share": share,
    }
    place = Placement((Spot(MachineId("here"), (0,)),))
    return JobRecord(
        1,
        JobId("train-1"),
        "train",
        "ann",
        "default",
        read_spec(spec),
        0.0,
        1.0,
        1.0,
        1.0,
        state=JobState.RUNNING,
        placement=place,
    )


def test_the_memory_of_a_replica_that_must_leave_is_lent_again_when_it_is_gone() -> None:
    one = OneMachine()
    assert isinstance(one.ask("f", 1, memory_mib=12_000), ReplicaPlace)
    assert one.hold(held(CARD_MIB), 1.0) == ["f/1"]
    one.hold({}, 2.0)

    # The job came and went while f was still on its way out.
    assert isinstance(one.ask("g", 1, memory_mib=12_000, at_s=2.0), Refusal)
    assert one.free_mib() == {FIRST: CARD_MIB - 12_000}
    one.leave("f/1", 3.0)
    assert isinstance(one.ask("g", 2, memory_mib=12_000, at_s=3.0), ReplicaPlace)


def test_a_replica_goes_where_there_is_memory() -> None:
    allocator = OneMachine(gpus=2)
    allocator.hold(held(memory_mib=CARD_MIB - 1_000), 0.0)

    site = lent(allocator.ask())

    assert site.device.gpu == SECOND


def test_a_device_that_jobs_fill_lends_nothing_until_they_end() -> None:
    allocator = OneMachine()
    allocator.hold(held(CARD_MIB), 0.0)

    assert isinstance(allocator.ask(), Refusal)
    assert allocator.lendable_mib == 0

    allocator.hold({}, 1.0)
    assert lent(allocator.ask(at_s=1.0)).device.gpu == FIRST


def test_a_job_that_needs_the_memory_gets_it() -> None:
    allocator = OneMachine()
    for number in range(4):
        lent(allocator.ask(number=number))

    leaving = allocator.hold(held(memory_mib=8_192), 1.0)
    for replica in leaving:
        allocator.leave(replica, 1.0)

    assert len(leaving) >= 2
    assert allocator.lendable_mib == CARD_MIB - 8_192


def test_many_small_functions_share_an_idle_device() -> None:
    allocator = OneMachine()

    for number in range(32):
        lent(allocator.ask(f"f{number}", memory_mib=128))


def test_nothing_is_held_twice_when_a_job_comes_and_goes() -> None:
    allocator = OneMachine()
    for at_s in range(10):
        allocator.hold(held() if at_s % 2 else {}, float(at_s))

    allocator.hold({}, 10.0)

    assert allocator.lendable_mib == CARD_MIB


def test_two_violations_in_a_row_take_the_function_away() -> None:
    allocator = OneMachine()
    allocator.hold(held(), 0.0)
    site = lent(allocator.ask())
    allocator.measured(slot({"train-1": 1.0}), 1.0)

    assert allocator.measured(slot({"train-1": 2.0}), 10.0).leaving == []
    assert allocator.measured(slot({"train-1": 2.0}), 20.0).leaving == []
    assert allocator.measured(slot({"train-1": 2.0}), 30.0).leaving == [site.id]
    allocator.leave(site.id, 30.0)

    # What was measured is remembered, until the job has made up for what it lost.
    assert isinstance(allocator.ask(number=2, at_s=31.0), Refusal)
    assert isinstance(allocator.ask("g", at_s=31.0), Refusal)


def test_one_violation_is_forgiven() -> None:
    allocator = OneMachine()
    allocator.hold(held(), 0.0)
    lent(allocator.ask())

    found = [
        allocator.measured(slot({"train-1": slow_down}), 10.0 * at).leaving
        for at, slow_down in enumerate([1.0, 1.5, 1.0, 1.5, 1.0, 1.0])
    ]

    assert not any(found)


def test_a_job_that_is_not_measured_moves_nobody() -> None:
    allocator = OneMachine()
    allocator.hold(held(), 0.0)
    lent(allocator.ask())

    for at_s in range(10):
        assert allocator.measured(slot({"other-1": 9.0}), float(at_s)).leaving == []


def test_a_function_that_is_twice_too_slow_moves_away_and_its_job_stays() -> None:
    allocator, full = (
        OneMachine(gpus=2),
        {SECOND: (Held(JobId("big-1"), job_workload("big"), CARD_MIB, 1.0),)},
    )
    allocator.hold({**held(), **full}, 0.0)
    first, other = (
        lent(allocator.ask(name, memory_mib=1_024, at_s=HOUR_S)) for name in ("f", "g")
    )

    assert allocator.measured(slot(f=suffers(2.5)), HOUR_S + 10).leaving == []
    assert allocator.measured(slot(f=suffers(2.5)), HOUR_S + 20).leaving == [first.id]
    allocator.leave(first.id, HOUR_S + 20)

    # The other may stay, and the first does not come back beside the job.
    assert allocator.measured(slot(g=suffers(1.5)), HOUR_S + 30).leaving == []
    assert isinstance(allocator.ask(number=2, at_s=2 * HOUR_S), Refusal)
    allocator.hold(held(), 2 * HOUR_S)
    assert lent(allocator.ask(number=3, at_s=2 * HOUR_S)).device.gpu == SECOND
    assert other.device.gpu == FIRST


def test_slots_in_which_a_function_was_not_measured_forgive_nothing() -> None:
    allocator = OneMachine()
    allocator.hold(held(), 0.0)
    site = lent(allocator.ask())

    assert allocator.measured(slot(f=suffers(2.5)), 10.0).leaving == []
    assert allocator.measured(slot({"train-1": 1.0}), 20.0).leaving == []
    assert allocator.measured(slot(f=suffers(2.5)), 30.0).leaving == [site.id]


def test_what_the_deadline_allows_is_no_violation() -> None:
    allocator = OneMachine()
    allocator.hold(held(), 0.0)
    lent(allocator.ask())

    for at_s in range(10):
        assert allocator.measured(slot(f=suffers(9.0, limit=10.0)), float(at_s)).leaving == []


def test_what_is_predicted_is_what_was_measured_before() -> None:
    allocator = OneMachine()
    allocator.hold(held(), 0.0)
    lent(allocator.ask())
    both = slot({"train-1": 1.08}, f=suffers(1.6))

    estimated = allocator.measured(both, 10.0)
    allocator.ask("g", at_s=15.0)  # makes the tables grow
    learned = allocator.measured(both, 20.0)

    mine, job = Place(F, FIRST), (TRAIN_1, FIRST)
    assert estimated.functions[mine].predicted == pytest.approx(1 / 0.97)
    assert estimated.jobs[job].predicted == pytest.approx(1 / 0.97)
    assert learned.functions[mine].predicted == pytest.approx(1.6, rel=0.02)
    assert 1.04 < learned.jobs[job].predicted < 1.08
    assert (learned.functions[mine].measured, learned.functions[mine].mean) == (1.6, 0.8)
    assert learned.functions[mine].beside == ("train-1",)
    assert learned.jobs[job].beside == ("function:f",)
    assert learned.jobs[job].device == learned.functions[mine].device == "here/0"


def test_pairs_go_to_the_data_set() -> None:
    allocator = OneMachine()
    allocator.hold(held(), 0.0)
    lent(allocator.ask())

    assert allocator.measured(slot({"train-1": 1.2}, f=suffers(3.0)), 10.0).coruns == [
        CoRun(BESIDE, TRAIN, F, 1.2),
        CoRun(LATENCY, F, TRAIN, 1.5),
        CoRun(P99, F, TRAIN, 3.0),
    ]
    few = allocator.measured(slot(f=suffers(3.0, calls=50)), 20.0)
    assert [one.way for one in few.coruns] == [LATENCY]


def test_larger_companies_do_not_go_to_the_data_set() -> None:
    allocator = OneMachine()
    allocator.hold(held(1_024, "train-1", "other-2"), 0.0)
    for name in ("f", "g"):
        lent(allocator.ask(name, at_s=HOUR_S))

    found = allocator.measured(
        slot({"train-1": 1.2}, called=(F, G), f=suffers(3.0, "train-1", "other-2")), HOUR_S
    )

    assert found.coruns == []
    assert found.jobs[TRAIN_1, FIRST].beside == ("function:f", "function:g")
    assert found.functions[Place(F, FIRST)].beside == ("train-1", "other-2")


def test_what_a_job_did_that_has_left_is_passed_over() -> None:
    allocator = OneMachine()
    allocator.hold(held(1_024, "new-2"), 0.0)
    lent(allocator.ask())

    found = allocator.measured(slot({"train-1": 9.0}, f=suffers(9.0, "train-1")), 10.0)

    assert (found.jobs, found.functions) == ({}, {})
    assert found.coruns == []


@pytest.mark.parametrize(
    ("share", "memory_mib"),
    [
        ({}, 4_096),
        ({"mode": "exclusive"}, CARD_MIB),
        ({"max_slowdown": 1.05}, CARD_MIB),
    ],
)
def test_jobs_hold_what_they_ask_for(share: dict[str, object], memory_mib: int) -> None:
    (one,) = holdings_of(snapshot_of(this_machine(1), record(**share)))[FIRST]

    assert (one.job_id, one.memory_mib) == ("train-1", memory_mib)


def test_nothing_is_held_of_a_machine_that_is_gone() -> None:
    other = Cluster("other", (Machine(MachineId("other"), "EMULATED", 1),))

    assert holdings_of(snapshot_of(other, record())) == {}


# -- machines that come and go ------------------------------------------------------------


def machine(
    name: str, *memory_mib: int, gpu_type: str = "T4", compute_milli: int = 1_000
) -> Machine:
    cards = (Card(gpu_type, mib, compute_milli) for mib in memory_mib)
    return with_devices(MachineId(name), cards, cpu_milli=8_000, memory_mib=8_000)


def test_a_machine_that_joins_is_lent() -> None:
    allocator = OneMachine()
    allocator.hold(held(CARD_MIB), 0.0)
    assert isinstance(allocator.ask(), Refusal)

    more = (*this_machine(1), machine("new", 8_192))
    assert allocator.follow(more, held(CARD_MIB), 1.0) == []

    assert lent(allocator.ask(at_s=1.0)).device.gpu == GpuRef(MachineId("new"), 0)
    assert allocator.lendable_mib == 8_192


def test_replicas_on_a_machine_that_is_lost_must_leave() -> None:
    allocator = OneMachine()
    site = lent(allocator.ask())

    assert allocator.follow((), {}, 1.0) == [site.id]
    allocator.leave(site.id, 1.0)

    assert (allocator.lendable_mib, allocator.free_mib()) == (0, {})
    assert isinstance(allocator.ask(number=2, at_s=2.0), Refusal)
    allocator.hold({}, 3.0)
    assert allocator.free_mib() == {FIRST: CARD_MIB}


def test_a_device_that_is_lost_lends_nothing_and_the_others_go_on() -> None:
    allocator, name = Allocator(), MachineId("m")
    allocator.follow((machine("m", 8_192, 8_192),), {}, 0.0)
    broken = with_devices(name, (Card("T4", 8_192, compute_milli=0), Card("T4", 8_192)))

    allocator.follow((broken,), {}, 1.0)

    assert allocator.free_mib() == {GpuRef(name, 1): 8_192}


def test_what_was_learned_stays_when_another_type_joins() -> None:
    allocator = OneMachine()
    allocator.hold(held(), 0.0)
    lent(allocator.ask())
    both = slot({"train-1": 1.08}, f=suffers(1.6))
    allocator.measured(both, 10.0)

    more = (*this_machine(1), machine("new", 8_192, gpu_type="A100"))
    allocator.follow(more, held(), 11.0)

    learned = allocator.measured(both, 20.0).functions[Place(F, FIRST)]
    assert learned.predicted == pytest.approx(1.6, rel=0.02)


SIZES = st.lists(st.sampled_from([2_048, 8_192]), max_size=2)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["machines", "jobs", "lend", "end"]), SIZES, SIZES, st.integers(0, 9)
    ),
    max_size=30,
)


@given(STEPS)
def test_no_replica_stays_where_there_is_no_device_and_no_memory_is_lost(
    steps: list[tuple[str, list[int], list[int], int]],
) -> None:
    allocator, machines = Allocator(), tuple[Machine, ...]()
    holdings: dict[GpuRef, tuple[Held, ...]] = {}
    sites: dict[str, GpuRef] = {}
    for at_s, (what, one, two, number) in enumerate(steps):
        if what == "machines":
            machines = machine("one", *one), machine("two", *two)
        elif what == "jobs":
            holdings = {
                GpuRef(MachineId("one"), gpu): (Held(TRAIN_1, TRAIN, mib, 0.5),)
                for gpu, mib in enumerate(one)
            }
        elif what == "lend" and f"f/{at_s}" not in sites:
            site = allocator.lend(f"f/{at_s}", F, 1_024, at_s, p99_limit=2.0, waiting=0)
            if isinstance(site, ReplicaPlace):
                sites[site.id] = site.device.gpu
        elif sites:
            gone = sorted(sites)[number % len(sites)]
            allocator.leave(gone, at_s)
            del sites[gone]
        for gone in allocator.follow(machines, holdings, at_s):
            allocator.leave(gone, at_s)
            del sites[gone]
        sizes = {
            GpuRef(each.id, gpu): each.device(gpu).memory_mib
            for each in machines
            for gpu in range(each.gpus)
        }
        assert set(sites.values()) <= sizes.keys()
        for gpu, free_mib in allocator.free_mib().items():
            jobs_mib = sum(each.memory_mib for each in holdings.get(gpu, ()))
            lent_mib = 1_024 * list(sites.values()).count(gpu)
            assert free_mib == max(0, sizes[gpu] - jobs_mib - lent_mib)
