"""Nothing impossible can be built, and the sentence says why."""

from collections.abc import Callable

import pytest

from interlane.model import (
    Demand,
    InvalidField,
    InvalidFile,
    InvalidInput,
    Machine,
    MachineId,
    Placement,
    Refusal,
    Request,
    Spot,
    Task,
    Tier,
    UnknownName,
    one_task,
)
from interlane.testing.build import cluster, job, machine, task

M0, M1 = MachineId("m0"), MachineId("m1")

BAD: dict[str, tuple[Callable[[], object], str]] = {
    "negative GPUs": (lambda: Demand(gpus=-1), "gpus is -1, but it must be 0 or more."),
    "no share": (
        lambda: Demand(1, gpu_milli=0),
        "gpu_milli is 0, but it must be 1 to 1000 per GPU.",
    ),
    "more than a GPU of each": (
        lambda: Demand(1, gpu_milli=1001),
        "gpu_milli is 1001, but it must be 1 to 1000 per GPU.",
    ),
    "negative memory": (
        lambda: Demand(memory_mib=-5),
        "memory_mib is -5, but it must be 0 or more.",
    ),
    "no instances": (
        lambda: Task(Demand(), instances=0),
        "instances is 0, but a task has at least 1.",
    ),
    "a least above the most": (
        lambda: Task(Demand(), 2, 3),
        "instances_min is 3, but it must be 1 to 2.",
    ),
    "a least of none": (
        lambda: Task(Demand(), 2, 0),
        "instances_min is 0, but it must be 1 to 2.",
    ),
    "no tasks": (lambda: Request(()), "A job has no tasks; it needs at least one."),
    "a machine with less than no CPU": (
        lambda: Machine(M0, cpu_milli=-1),
        "cpu_milli of machine m0 is -1, but it must be 0 or more.",
    ),
    "too many GPUs to tell apart": (
        lambda: Machine(M0, "T4", 63),
        "gpus of machine m0 is 63, but at most 62 are told apart; mark it pooled.",
    ),
    "two machines of one name": (
        lambda: cluster(machine("m0"), machine("m0")),
        "machine id is 'm0', but each machine needs its own.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_impossible_is_refused_in_one_sentence(case: str) -> None:
    build, sentence = BAD[case]

    with pytest.raises(InvalidInput) as refused:
        build()

    assert str(refused.value) == sentence


def test_a_field_that_is_wrong_is_named() -> None:
    with pytest.raises(InvalidField) as refused:
        Demand(gpus=-1)

    assert (refused.value.field, refused.value.value) == ("gpus", -1)


def test_a_file_is_named_with_its_line_where_it_is_known() -> None:
    assert str(InvalidFile("a.csv", "bad row", 3)) == "a.csv, line 3: bad row"
    assert str(InvalidFile("a.csv", "is missing")) == "a.csv: is missing"


def test_a_name_that_is_nearly_right_gets_a_hint() -> None:
    error = UnknownName("order", "fifu", ["sjf", "fifo"])

    assert str(error) == (
        "order 'fifu' is not known; did you mean 'fifo'? known are: fifo, sjf."
    )


def test_totals_count_every_gpu_of_every_instance() -> None:
    # 3 instances x 2 GPUs x 0.5 = 3 GPUs, and one chief with a whole one.
    asked = job(
        "a",
        task(gpus=2, gpu_milli=500, cpus=2, instances=3),
        task(gpus=1, cpus=1, role="chief"),
    ).request

    assert (asked.gpu_milli, asked.cpu_milli, asked.instances) == (4000, 7000, 4)


def test_equal_requests_are_one_shape() -> None:
    assert one_task(Demand(1), 2) == one_task(Demand(1), 2)
    assert hash(one_task(Demand(1), 2)) == hash(one_task(Demand(1), 2))
    assert one_task(Demand(1), 2) != one_task(Demand(1), 3)
    assert one_task(Demand(1)) != "a request"


def test_a_gang_is_elastic_only_where_fewer_will_do() -> None:
    assert not job(gpus=1, instances=4).request.is_elastic
    assert job(gpus=1, instances=4, at_least=1).request.is_elastic
    assert not job(gpus=1, instances=4, at_least=4).request.is_elastic


def test_a_placement_counts_instances_and_names_machines_once() -> None:
    placed = Placement((Spot(M1, (0,), 2), Spot(M0, (1,)), Spot(M1, (3,), 1, 1)))

    assert placed.instances == 4
    assert placed.machines == (M1, M0)


def test_a_refusal_reads_as_tier_reason_and_remedy() -> None:
    refusal = Refusal(Tier.NEVER_FITS, "It is too large.", "Ask for less.")

    assert str(refusal) == "never fits: It is too large. Ask for less."
    assert Tier.INVALID < Tier.NEVER_FITS < Tier.QUOTA < Tier.CAPACITY < Tier.ORDER


def test_a_cluster_sums_its_machines() -> None:
    on = cluster(machine("m0", gpus=2, cpus=8), machine("m1", type="CPU", cpus=4))

    assert (len(on), on.gpus, on.cpu_milli, on.gpu_types) == (2, 2, 12_000, frozenset({"T4"}))
    assert [each.id for each in on] == ["m0", "m1"]
