"""Where replicas go, and when they must leave: jobs never do."""

import pytest

from interlane.device.specs import DeviceSpec
from interlane.engines.local.devices import Devices, emulated
from interlane.live.files.job import read_spec
from interlane.live.functions.lender import Held, Lender, Slot, holdings_of
from interlane.live.functions.replicas import Site
from interlane.live.functions.services import Place, Slowed
from interlane.live.measure.coruns import BESIDE, LATENCY, P99, CoRun, function_name
from interlane.live.store.record import Record, State
from interlane.model import JobId, Refusal
from interlane.model.function import Function
from interlane.testing.live import this_machine

CARD_MIB = 16_384
ON_FIRST = "here/0"
HOUR_S = 3_600.0
"""In which a job saves up enough to bear several functions."""
F, G = function_name("f"), function_name("g")


def function(name: str = "f", number: int = 1, memory_mib: int = 4_096) -> Function:
    return Function(f"{name}/{number}", function_name(name), memory_mib)


def held(memory_mib: int = 8_192, *jobs: str) -> dict[str, tuple[Held, ...]]:
    return {
        ON_FIRST: tuple(
            Held(job, job.partition("-")[0], memory_mib, 0.5) for job in jobs or ("train-1",)
        )
    }


def suffers(p99: float, *jobs: str, calls: int = 1_000, limit: float = 2.0) -> Slowed:
    return Slowed(frozenset(jobs or ("train-1",)), calls, 0.01, p99 / 2, p99, limit)


def slot(
    jobs: dict[str, float] | None = None,
    called: tuple[str, ...] = (F,),
    **functions: Slowed,
) -> Slot:
    return Slot(
        jobs or {},
        {Place(function_name(name), ON_FIRST): one for name, one in functions.items()},
        frozenset(Place(name, ON_FIRST) for name in called),
    )


def lender(gpus: int = 1) -> Lender:
    (machine,) = this_machine(gpus)
    return Lender(emulated(machine))


def lent(found: Site | Refusal) -> Site:
    assert isinstance(found, Site)
    return found


def record(**share: object) -> Record:
    job = read_spec(
        {
            "name": "train",
            "run": "true",
            "resources": {"gpu": {"count": 1, **({} if share else {"memory": "4GiB"})}},
            "share": share,
        }
    )
    place = ({"task": 0, "machine": "here", "gpus": [0], "instances": 1},)
    return Record(
        1,
        JobId("train-1"),
        "train",
        "ann",
        "default",
        job,
        0.0,
        1.0,
        1.0,
        1.0,
        state=State.RUNNING,
        placement=place,
    )


def test_a_replica_goes_where_there_is_memory() -> None:
    books = lender(gpus=2)
    books.follow(held(memory_mib=CARD_MIB - 1_000), 0.0)

    site = lent(books.lend(function(), 0, 0.0))

    assert site.device.gpu == "here/1"


def test_a_device_that_jobs_fill_lends_nothing_until_they_end() -> None:
    books = lender()
    books.follow(held(CARD_MIB), 0.0)

    assert isinstance(books.lend(function(), 0, 0.0), Refusal)
    assert books.lendable_mib == 0

    books.follow({}, 1.0)
    assert lent(books.lend(function(), 0, 1.0)).device.gpu == ON_FIRST


def test_a_job_that_needs_the_memory_gets_it() -> None:
    books = lender()
    for number in range(4):
        lent(books.lend(function(number=number), 0, 0.0))

    leaving = books.follow(held(memory_mib=8_192), 1.0)
    for replica in leaving:
        books.leave(replica, 1.0)

    assert len(leaving) >= 2
    assert books.lendable_mib == CARD_MIB - 8_192


def test_many_small_functions_share_an_idle_device() -> None:
    books = lender()

    for number in range(32):
        lent(books.lend(function(f"f{number}", memory_mib=128), 0, 0.0))


def test_nothing_is_held_twice_when_a_job_comes_and_goes() -> None:
    books = lender()
    for at_s in range(10):
        books.follow(held() if at_s % 2 else {}, float(at_s))

    books.follow({}, 10.0)

    assert books.lendable_mib == CARD_MIB


def test_two_violations_in_a_row_take_the_function_away() -> None:
    books = lender()
    books.follow(held(), 0.0)
    site = lent(books.lend(function(), 0, 0.0))
    books.measured(slot({"train-1": 1.0}), 1.0)

    assert books.measured(slot({"train-1": 2.0}), 10.0).leaving == []
    assert books.measured(slot({"train-1": 2.0}), 20.0).leaving == []
    assert books.measured(slot({"train-1": 2.0}), 30.0).leaving == [site.id]
    books.leave(site.id, 30.0)

    # What was measured is remembered, until the job has made up for what it lost.
    assert isinstance(books.lend(function(number=2), 0, 31.0), Refusal)
    assert isinstance(books.lend(function("g"), 0, 31.0), Refusal)


def test_one_violation_is_forgiven() -> None:
    books = lender()
    books.follow(held(), 0.0)
    lent(books.lend(function(), 0, 0.0))

    found = [
        books.measured(slot({"train-1": slow_down}), 10.0 * at).leaving
        for at, slow_down in enumerate([1.0, 1.5, 1.0, 1.5, 1.0, 1.0])
    ]

    assert not any(found)


def test_a_job_that_is_not_measured_moves_nobody() -> None:
    books = lender()
    books.follow(held(), 0.0)
    lent(books.lend(function(), 0, 0.0))

    for at_s in range(10):
        assert books.measured(slot({"other-1": 9.0}), float(at_s)).leaving == []


def test_a_function_that_is_twice_too_slow_moves_away_and_its_job_stays() -> None:
    books, full = lender(gpus=2), {"here/1": (Held("big-1", "big", CARD_MIB, 1.0),)}
    books.follow({**held(), **full}, 0.0)
    first, other = (
        lent(books.lend(function(name, memory_mib=1_024), 0, HOUR_S)) for name in ("f", "g")
    )

    assert books.measured(slot(f=suffers(2.5)), HOUR_S + 10).leaving == []
    assert books.measured(slot(f=suffers(2.5)), HOUR_S + 20).leaving == [first.id]
    books.leave(first.id, HOUR_S + 20)

    # The other may stay, and the first does not come back beside the job.
    assert books.measured(slot(g=suffers(1.5)), HOUR_S + 30).leaving == []
    assert isinstance(books.lend(function(number=2), 0, 2 * HOUR_S), Refusal)
    books.follow(held(), 2 * HOUR_S)
    assert lent(books.lend(function(number=3), 0, 2 * HOUR_S)).device.gpu == "here/1"
    assert other.device.gpu == ON_FIRST


def test_slots_in_which_a_function_was_not_measured_forgive_nothing() -> None:
    books = lender()
    books.follow(held(), 0.0)
    site = lent(books.lend(function(), 0, 0.0))

    assert books.measured(slot(f=suffers(2.5)), 10.0).leaving == []
    assert books.measured(slot({"train-1": 1.0}), 20.0).leaving == []
    assert books.measured(slot(f=suffers(2.5)), 30.0).leaving == [site.id]


def test_what_the_deadline_allows_is_no_violation() -> None:
    books = lender()
    books.follow(held(), 0.0)
    lent(books.lend(function(), 0, 0.0))

    for at_s in range(10):
        assert books.measured(slot(f=suffers(9.0, limit=10.0)), float(at_s)).leaving == []


def test_what_is_predicted_is_what_was_measured_before() -> None:
    books = lender()
    books.follow(held(), 0.0)
    lent(books.lend(function(), 0, 0.0))
    both = slot({"train-1": 1.08}, f=suffers(1.6))

    guessed = books.measured(both, 10.0).compared
    books.lend(function("g"), 0, 15.0)  # makes the tables grow
    learned = books.measured(both, 20.0).compared

    mine, job = Place(F, ON_FIRST), Place("train-1", ON_FIRST)
    assert guessed[mine].predicted == guessed[job].predicted == pytest.approx(1 / 0.97)
    assert learned[mine].predicted == pytest.approx(1.6, rel=0.02)
    assert 1.04 < learned[job].predicted < 1.08
    assert (learned[mine].measured, learned[mine].mean) == (1.6, 0.8)
    assert (learned[mine].beside, learned[job].beside) == (("train-1",), (F,))


def test_pairs_go_to_the_data_set() -> None:
    books = lender()
    books.follow(held(), 0.0)
    lent(books.lend(function(), 0, 0.0))

    assert books.measured(slot({"train-1": 1.2}, f=suffers(3.0)), 10.0).coruns == [
        CoRun(BESIDE, "train", F, 1.2),
        CoRun(LATENCY, F, "train", 1.5),
        CoRun(P99, F, "train", 3.0),
    ]
    few = books.measured(slot(f=suffers(3.0, calls=50)), 20.0)
    assert [one.way for one in few.coruns] == [LATENCY]


def test_larger_companies_do_not_go_to_the_data_set() -> None:
    books = lender()
    books.follow(held(1_024, "train-1", "other-2"), 0.0)
    for name in ("f", "g"):
        lent(books.lend(function(name), 0, HOUR_S))

    found = books.measured(
        slot({"train-1": 1.2}, called=(F, G), f=suffers(3.0, "train-1", "other-2")), HOUR_S
    )

    assert found.coruns == []
    assert found.compared[Place("train-1", ON_FIRST)].beside == (F, G)
    assert found.compared[Place(F, ON_FIRST)].beside == ("train-1", "other-2")


def test_what_a_job_did_that_has_left_is_passed_over() -> None:
    books = lender()
    books.follow(held(1_024, "new-2"), 0.0)
    lent(books.lend(function(), 0, 0.0))

    found = books.measured(slot({"train-1": 9.0}, f=suffers(9.0, "train-1")), 10.0)

    assert found.compared == {}
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
    (one,) = holdings_of([record(**share)], this_machine(1))[ON_FIRST]

    assert (one.job_id, one.memory_mib) == ("train-1", memory_mib)


def test_a_replica_sees_its_own_gpu_and_no_other() -> None:
    cluster = this_machine(2)
    specs = tuple(DeviceSpec("cuda:0", 16 << 30) for _ in range(2))
    real = Devices(cluster, emulated=False, shared=specs, uuids=("GPU-a", "GPU-b"))

    devices = Lender(real).devices

    assert [(one.number, one.visible) for one in devices.values()] == [
        (0, "GPU-a"),
        (1, "GPU-b"),
    ]
    assert all(one.cores == () for one in devices.values())
