"""Gangs, roles, togetherness, GPU memory: all of what was asked for, or nothing."""

import pytest

from interlane.kernel.scheduler import Scheduler
from interlane.model import Action, Job, JobId, Placement, Refuse, Start, Submitted
from interlane.policy.place import balance, pack
from interlane.testing.build import cluster, job, machine, make, pool, task


def placed(scheduler: Scheduler, asked: Job) -> Placement | None:
    actions: tuple[Action, ...] = scheduler.handle(Submitted(asked), 0)
    starts = [action for action in actions if isinstance(action, Start)]
    return starts[0].placement if starts else None


def where(placement: Placement | None) -> list[tuple[str, tuple[int, ...], int, int]]:
    assert placement is not None
    return [(s.machine, s.gpus, s.instances, s.task) for s in placement.spots]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    scheduler = make(cluster(gpus=[2, 1]))
    scheduler.handle(Submitted(job("x", gpus=1)), 0)

    assert placed(scheduler, job("a", gpus=1, instances=3)) is None
    scheduler.check()
    assert scheduler.view.free(0).gpu_milli == (0, 1000)
    assert scheduler.view.free(1).gpu_milli == (1000,)


def test_a_gang_may_span_machines() -> None:
    got = placed(make(cluster(gpus=[2, 1])), job(gpus=1, instances=3))

    assert where(got) == [("m0", (0,), 1, 0), ("m0", (1,), 1, 0), ("m1", (0,), 1, 0)]


def test_instances_that_share_a_gpu_are_one_spot() -> None:
    got = placed(make(gpus=1), job(gpus=1, gpu_milli=250, instances=4))

    assert where(got) == [("m0", (0,), 4, 0)]


@pytest.mark.parametrize(("gpus", "expected"), [(1, 0), (2, 2), (3, 3), (5, 4)])
def test_an_elastic_gang_takes_what_there_is_between_its_least_and_its_most(
    gpus: int, expected: int
) -> None:
    scheduler = make(pool(gpus))
    scheduler.handle(Submitted(job("x", cpus=1)), 0)

    got = placed(scheduler, job("a", gpus=1, instances=4, at_least=2))

    assert (0 if got is None else got.instances) == expected


def test_a_gang_that_wants_one_machine_skips_those_that_are_too_small() -> None:
    got = placed(make(cluster(gpus=[1, 1, 2])), job(gpus=1, instances=2, same_machine=True))

    assert where(got) == [("m2", (0,), 1, 0), ("m2", (1,), 1, 0)]


def test_roles_see_what_the_roles_before_them_took() -> None:
    # One GPU of m0 goes to the chief; both workers then need m1.
    chief, worker = task(gpus=1, role="chief"), task(gpus=1, instances=2, same_machine=True)

    got = placed(make(cluster(gpus=[2, 2])), job("a", chief, worker))

    assert where(got) == [("m0", (0,), 1, 0), ("m1", (0,), 1, 1), ("m1", (1,), 1, 1)]


def test_roles_that_do_not_fit_together_leave_nothing_behind() -> None:
    scheduler = make(cluster(gpus=[2]))
    scheduler.handle(Submitted(job("x", gpus=1)), 0)

    asked = job("a", task(gpus=1, role="chief"), task(gpus=1, gpu_milli=500, role="worker"))

    assert placed(scheduler, asked) is None
    scheduler.check()
    # The index must have forgotten the attempt too: exactly the other GPU is offered.
    assert where(placed(scheduler, job("b", gpus=1))) == [("m0", (1,), 1, 0)]


def test_gpu_memory_is_counted_per_gpu() -> None:
    # 16 GiB each: two jobs of 10 GiB cannot share one GPU although their shares would.
    scheduler = make(gpus=2)
    first = placed(scheduler, job("a", gpus=1, gpu_milli=100, gpu_memory_mib=10_240))
    second = placed(scheduler, job("b", gpus=1, gpu_milli=100, gpu_memory_mib=10_240))
    third = placed(scheduler, job("c", gpus=1, gpu_milli=100, gpu_memory_mib=10_240))

    assert where(first) == [("m0", (0,), 1, 0)]
    assert where(second) == [("m0", (1,), 1, 0)]
    assert third is None


def test_shares_of_several_gpus_take_distinct_gpus() -> None:
    got = placed(make(gpus=3), job(gpus=2, gpu_milli=500, instances=3))

    # Six halves on three GPUs: every GPU twice, no instance on the same GPU twice.
    assert got is not None
    assert sorted(gpu for spot in got.spots for gpu in spot.gpus * spot.instances) == [
        0, 0, 1, 1, 2, 2,
    ]  # fmt: skip
    assert all(len(set(spot.gpus)) == 2 for spot in got.spots)


def test_types_that_a_job_names_bind() -> None:
    on = cluster(machine("m0", gpus=1, type="T4"), machine("m1", gpus=1, type="V100"))

    assert where(placed(make(on), job(gpus=1, types=["V100", "A10"]))) == [("m1", (0,), 1, 0)]


def test_pack_fills_and_balance_spreads() -> None:
    packing, spreading = (
        make(cluster(gpus=[2, 2]), placer=pack()),
        make(cluster(gpus=[2, 2]), placer=balance()),
    )
    for scheduler in (packing, spreading):
        scheduler.handle(Submitted(job("a", gpus=1, cpus=1)), 0)

    assert where(placed(packing, job("b", gpus=1)))[0][0] == "m0"
    assert where(placed(spreading, job("b", gpus=1)))[0][0] == "m1"


def test_work_that_asks_for_nothing_starts() -> None:
    scheduler = make(gpus=1)

    assert placed(scheduler, job("a", instances=3)) is not None
    assert scheduler.placement(JobId("a")) is not None


def test_a_pool_does_not_give_more_memory_of_a_card_than_the_card_has() -> None:
    # The cards of this pool have 16 GiB each.
    scheduler = make(pool(4))

    actions = scheduler.handle(Submitted(job("a", gpus=1, gpu_memory_mib=20_000)), 0)

    assert [type(action) for action in actions] == [Refuse]
