"""What jobs hold, what they and functions suffer from each other, and what follows."""

from collections.abc import Iterable
from math import nan

import pytest

from interlane.functions.events import (
    DevicesChanged,
    DropReplica,
    FunctionAction,
    FunctionDeployed,
    Held,
    JobsHeld,
    LoadReplica,
    ReplicasEnded,
    ReplicasNeeded,
)
from interlane.functions.scheduler import FunctionScheduler
from interlane.live.files.job import program_of, read_spec
from interlane.live.functions.colocation import (
    Holdings,
    MeasuredSlot,
    SlotVerdict,
    compare_slot,
    holdings_of,
)
from interlane.live.functions.services import Place, Slowed
from interlane.live.measure.coruns import (
    BESIDE,
    LATENCY,
    P99,
    CoRun,
    SoloSpeed,
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
    Spot,
    Workload,
    with_devices,
)
from interlane.model import Device as Card
from interlane.model.function import Function
from interlane.model.lifecycle import JobState
from interlane.policy.colocate.catalogue import BOUNDED, make_colocator
from interlane.testing.live import snapshot_of, this_machine

CARD_MIB = 16_384
FIRST, SECOND = (GpuRef(MachineId("here"), number) for number in range(2))
TRAIN_1 = JobId("train-1")
HOUR_S = 3_600.0
"""In which a job saves up enough to bear several functions."""
F, G = function_workload("f"), function_workload("g")
TRAIN = job_workload("train")


class OneMachine(FunctionScheduler):
    """A scheduler of functions on one machine's devices, and short ways to ask it."""

    def __init__(self, gpus: int = 1) -> None:
        super().__init__(make_colocator(BOUNDED), slot_s=10.0)
        self.at_s = 0.0
        self.tell(DevicesChanged(this_machine(gpus).machines), 0.0)

    def hold(self, holdings: Holdings, now_s: float) -> list[int]:
        changed = {gpu: holdings.get(gpu, ()) for gpu in self.ledger.gpus.by_id}
        return dropped(self.tell(JobsHeld(changed), now_s))

    def ask(
        self, name: str = "f", memory_mib: int = 4_096, *, at_s: float = 0.0
    ) -> LoadReplica | None:
        """Let a function be called; return where its next replica goes, if anywhere."""
        if name not in self._functions:
            need = Function(name, str(function_workload(name)), memory_mib, 0.01)
            self.tell(FunctionDeployed(need, 40), at_s)
        actions = self.tell(ReplicasNeeded({name: 1}), at_s)
        return next((one for one in actions if isinstance(one, LoadReplica)), None)

    def measured(self, slot: MeasuredSlot, now_s: float) -> tuple[SlotVerdict, list[int]]:
        """Compare a slot; return what came of it, and the replicas that must leave."""
        verdict = compare_slot(slot, self.ledger, now_s)
        actions = [one for event in verdict.events for one in self.tell(event, now_s)]
        return verdict, dropped(actions)

    def leave(self, replica: int, now_s: float) -> None:
        self.tell(ReplicasEnded((replica,)), now_s)


def dropped(actions: Iterable[FunctionAction]) -> list[int]:
    return [one.replica for one in actions if isinstance(one, DropReplica)]


def held(memory_mib: int = 8_192, *jobs: str) -> dict[GpuRef, tuple[Held, ...]]:
    return {
        FIRST: tuple(
            Held(JobId(job), job_workload(job.partition("-")[0]), memory_mib, 0.4)
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


def lent(found: LoadReplica | None) -> LoadReplica:
    assert found is not None
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


def test_two_violations_in_a_row_take_the_function_away() -> None:
    one = OneMachine()
    one.hold(held(), 0.0)
    replica = lent(one.ask()).replica
    one.measured(slot({"train-1": 1.0}), 1.0)

    assert one.measured(slot({"train-1": 2.0}), 10.0)[1] == []
    assert one.measured(slot({"train-1": 2.0}), 20.0)[1] == []
    assert one.measured(slot({"train-1": 2.0}), 30.0)[1] == [replica]
    one.leave(replica, 30.0)

    # What was measured is remembered, until the job has made up for what it lost.
    assert one.ask(at_s=31.0) is None
    assert one.ask("g", at_s=31.0) is None


def test_one_violation_is_forgiven() -> None:
    one = OneMachine()
    one.hold(held(), 0.0)
    lent(one.ask())

    found = [
        one.measured(slot({"train-1": slow_down}), 10.0 * at)[1]
        for at, slow_down in enumerate([1.0, 1.5, 1.0, 1.5, 1.0, 1.0])
    ]

    assert not any(found)


def test_a_job_that_is_not_measured_moves_nobody() -> None:
    one = OneMachine()
    one.hold(held(), 0.0)
    lent(one.ask())

    for at_s in range(10):
        assert one.measured(slot({"other-1": 9.0}), float(at_s))[1] == []


def test_a_function_that_is_twice_too_slow_moves_away_and_its_job_stays() -> None:
    one, full = (
        OneMachine(gpus=2),
        {SECOND: (Held(JobId("big-1"), job_workload("big"), CARD_MIB, 1.0),)},
    )
    one.hold({**held(), **full}, 0.0)
    first, other = (lent(one.ask(name, 1_024, at_s=HOUR_S)) for name in ("f", "g"))

    assert one.measured(slot(f=suffers(2.5)), HOUR_S + 10)[1] == []
    assert one.measured(slot(f=suffers(2.5)), HOUR_S + 20)[1] == [first.replica]
    one.leave(first.replica, HOUR_S + 20)

    # The other may stay, and the first does not come back beside the job.
    assert one.measured(slot(g=suffers(1.5)), HOUR_S + 30)[1] == []
    assert one.ask(at_s=2 * HOUR_S) is None
    one.hold(held(), 2 * HOUR_S)
    assert lent(one.ask(at_s=2 * HOUR_S)).gpu == SECOND
    assert other.gpu == FIRST


def test_slots_in_which_a_function_was_not_measured_forgive_nothing() -> None:
    one = OneMachine()
    one.hold(held(), 0.0)
    replica = lent(one.ask()).replica

    assert one.measured(slot(f=suffers(2.5)), 10.0)[1] == []
    assert one.measured(slot({"train-1": 1.0}), 20.0)[1] == []
    assert one.measured(slot(f=suffers(2.5)), 30.0)[1] == [replica]


def test_what_the_deadline_allows_is_no_violation() -> None:
    one = OneMachine()
    one.hold(held(), 0.0)
    lent(one.ask())

    for at_s in range(10):
        assert one.measured(slot(f=suffers(9.0, limit=10.0)), float(at_s))[1] == []


def test_what_is_predicted_is_what_was_measured_before() -> None:
    one = OneMachine()
    one.hold(held(), 0.0)
    lent(one.ask())
    both = slot({"train-1": 1.08}, f=suffers(1.6))

    estimated, _ = one.measured(both, 10.0)
    one.ask("g", at_s=15.0)  # makes the tables grow
    learned, _ = one.measured(both, 20.0)

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
    one = OneMachine()
    one.hold(held(), 0.0)
    lent(one.ask())

    assert one.measured(slot({"train-1": 1.2}, f=suffers(3.0)), 10.0)[0].coruns == [
        CoRun(BESIDE, TRAIN, F, 1.2),
        CoRun(LATENCY, F, TRAIN, 1.5),
        CoRun(P99, F, TRAIN, 3.0),
    ]
    few, _ = one.measured(slot(f=suffers(3.0, calls=50)), 20.0)
    assert [run.way for run in few.coruns] == [LATENCY]


def test_larger_companies_do_not_go_to_the_data_set() -> None:
    one = OneMachine()
    one.hold(held(1_024, "train-1", "other-2"), 0.0)
    for name in ("f", "g"):
        lent(one.ask(name, at_s=HOUR_S))

    found, _ = one.measured(
        slot({"train-1": 1.2}, called=(F, G), f=suffers(3.0, "train-1", "other-2")), HOUR_S
    )

    assert found.coruns == []
    assert found.jobs[TRAIN_1, FIRST].beside == ("function:f", "function:g")
    assert found.functions[Place(F, FIRST)].beside == ("train-1", "other-2")


def test_several_functions_beside_one_job_teach_how_they_add_up() -> None:
    one = OneMachine()
    one.hold(held(), 0.0)
    for name in ("f", "g"):
        lent(one.ask(name, 1_024, at_s=HOUR_S))

    crowd = slot({"train-1": 1.5}, called=(F, G))
    predicted = [
        one.measured(crowd, HOUR_S + at)[0].jobs[TRAIN_1, FIRST].predicted for at in range(2)
    ]

    assert predicted[0] < 1.1 < predicted[1]


def test_what_a_job_did_that_has_left_is_passed_over() -> None:
    one = OneMachine()
    one.hold(held(1_024, "new-2"), 0.0)
    lent(one.ask())

    found, _ = one.measured(slot({"train-1": 9.0}, f=suffers(9.0, "train-1")), 10.0)

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


def test_what_was_learned_stays_when_another_type_joins() -> None:
    one = OneMachine()
    one.hold(held(), 0.0)
    lent(one.ask())
    both = slot({"train-1": 1.08}, f=suffers(1.6))
    one.measured(both, 10.0)

    card = Card("A100", 8_192)
    new = with_devices(MachineId("new"), [card], cpu_milli=8_000, memory_mib=8_000)
    one.tell(DevicesChanged((*this_machine(1).machines, new)), 11.0)

    learned = one.measured(both, 20.0)[0].functions[Place(F, FIRST)]
    assert learned.predicted == pytest.approx(1.6, rel=0.02)


def test_many_small_functions_share_an_idle_device() -> None:
    one = OneMachine()

    for number in range(32):
        lent(one.ask(f"f{number}", memory_mib=128))


@pytest.mark.parametrize(("busy", "counts"), [(nan, 0.9), (0.42, 0.4), (1.0, 0.9), (None, 0.9)])
def test_a_job_counts_with_the_compute_that_it_keeps_busy_but_for_what_it_may_lose(
    busy: float | None, counts: float
) -> None:
    now = snapshot_of(this_machine(1), record())
    (known,) = (job_workload(program_of(one.job)) for one in now.records)
    solos = {} if busy is None else {known: SoloSpeed(busy, 0.1, 5.0)}

    (one,) = holdings_of(now, solos)[FIRST]

    assert one.use == pytest.approx(counts / 4)  # it has a quarter of the device
