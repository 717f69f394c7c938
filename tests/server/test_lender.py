"""Where replicas go, and when they must leave: jobs never do."""

import pytest

from interlane.device.specs import DeviceSpec
from interlane.model import JobId, Refusal
from interlane.model.function import Function
from interlane.server.devices import Devices, emulated
from interlane.server.functions.deployed import Device, Site
from interlane.server.functions.interference import Interference, Progress
from interlane.server.functions.lender import Held, Lender, holdings_of
from interlane.server.record import Record, State
from interlane.testing.live import this_machine

CARD_MIB = 16_384
ON_FIRST = "here/0"


def function(name: str = "f", number: int = 1, memory_mib: int = 4_096) -> Function:
    return Function(f"{name}/{number}", name, memory_mib)


def held(memory_mib: int = 8_192, job: str = "train-1") -> dict[str, tuple[Held, ...]]:
    return {ON_FIRST: (Held(job, "train", memory_mib, 0.5),)}


def lender(gpus: int = 1) -> Lender:
    (machine,) = this_machine(gpus)
    return Lender(emulated(machine))


def lent(found: Site | Refusal) -> Site:
    assert isinstance(found, Site)
    return found


def record(**share: object) -> Record:
    spec = {
        "name": "train",
        "run": "true",
        "resources": {"gpu": {"count": 1, **({} if share else {"memory": "4GiB"})}},
        "share": share,
    }
    place = ({"task": 0, "machine": "here", "gpus": [0], "instances": 1},)
    return Record(
        1,
        JobId("train-1"),
        "train",
        "ann",
        "default",
        spec,
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
    books.measured({"train-1": 1.0}, 1.0)

    assert books.measured({"train-1": 2.0}, 10.0) == []
    assert books.measured({"train-1": 2.0}, 20.0) == []
    assert books.measured({"train-1": 2.0}, 30.0) == [site.id]
    books.leave(site.id, 30.0)

    # What was measured is remembered, until the job has made up for what it lost.
    assert isinstance(books.lend(function(number=2), 0, 31.0), Refusal)
    assert isinstance(books.lend(function("g"), 0, 31.0), Refusal)


def test_one_violation_is_forgiven() -> None:
    books = lender()
    books.follow(held(), 0.0)
    lent(books.lend(function(), 0, 0.0))

    found = [
        books.measured({"train-1": slow_down}, 10.0 * at)
        for at, slow_down in enumerate([1.0, 1.5, 1.0, 1.5, 1.0, 1.0])
    ]

    assert not any(found)


def test_a_job_that_is_not_measured_moves_nobody() -> None:
    books = lender()
    books.follow(held(), 0.0)
    lent(books.lend(function(), 0, 0.0))

    for at_s in range(10):
        assert books.measured({"other-1": 9.0}, float(at_s)) == []


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


# -- what is measured ---------------------------------------------------------------------


def progress(iterations: int, busy_s: float) -> list[Progress]:
    return [Progress("train-1", ON_FIRST, iterations, busy_s)]


def test_iterations_beside_functions_are_set_against_those_beside_none() -> None:
    seen, device = Interference(), Device(ON_FIRST, 0, "", ())
    for at in range(5):
        seen.look(progress(10 * at, 1.0 * at), {ON_FIRST: device})
    assert seen.end_slot() == {}

    for at in range(1, 6):
        device.calls += 1
        seen.look(progress(40 + 10 * at, 4.0 + 1.5 * at), {ON_FIRST: device})

    assert seen.end_slot()["train-1"] == pytest.approx(1.5)
    assert seen.end_slot() == {}


def test_a_job_that_was_never_alone_is_compared_with_nothing() -> None:
    seen, device = Interference(), Device(ON_FIRST, 0, "", (), in_hand=1)
    for at in range(20):
        seen.look(progress(10 * at, 1.0 * at), {ON_FIRST: device})

    assert seen.end_slot() == {}


def test_a_job_that_began_anew_is_known_anew() -> None:
    seen, device = Interference(), Device(ON_FIRST, 0, "", ())
    for at in range(5):
        seen.look(progress(10 * at, 1.0 * at), {ON_FIRST: device})
    device.calls += 1
    seen.look(progress(1, 5.0), {ON_FIRST: device})
    seen.look(progress(1, 0.5), {ON_FIRST: device})

    assert seen.end_slot() == {}
