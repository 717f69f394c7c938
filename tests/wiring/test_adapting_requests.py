import pytest

from interlane.model import (
    Closeness,
    Cluster,
    Demand,
    Device,
    Machine,
    MachineId,
    Request,
    Task,
    one_task,
    with_devices,
)
from interlane.sim.adapt import adaptation, let_start_with
from interlane.traces.clusters import load_cluster

HOST = Machine(MachineId("host"), "T4", 8, 64_000, 512)
SMALL = Machine(MachineId("small"), "V100", 2, 64_000, 512)
HOSTS = Cluster("hosts", (HOST, SMALL))


def adapted(request: Request, pods: int = 1, cluster: Cluster = HOSTS) -> Request:
    adapt = adaptation(cluster)
    assert adapt is not None
    return adapt(request, pods)


def test_a_pool_cuts_what_exceeds_it_and_forgets_types() -> None:
    pool = load_cluster("pool:10")
    asked = Demand(64, 500, cpu_milli=10**9, gpu_types=frozenset({"V100"}))

    (task,) = adapted(one_task(asked, 3), cluster=pool).tasks

    assert task == Task(Demand(10, 1000, cpu_milli=232_000), 3)


def test_a_pool_leaves_what_fits_exactly_as_it_is() -> None:
    fits = Demand(5, 500, cpu_milli=1000)

    assert adapted(one_task(fits), cluster=load_cluster("pool:3")) == one_task(fits)


def test_pods_that_share_gpus_become_instances() -> None:
    total = one_task(Demand(5, 500, cpu_milli=10_001, memory_mib=100))

    assert adapted(total, pods=5) == one_task(Demand(1, 500, cpu_milli=2_001, memory_mib=20), 5)


def test_whole_gpus_of_several_pods_stay_together_where_a_machine_hosts_them() -> None:
    total = one_task(Demand(8, cpu_milli=8_000))

    assert adapted(total, pods=8) == total


def test_a_total_that_no_machine_hosts_becomes_its_pods() -> None:
    too_many_cpus = one_task(Demand(8, cpu_milli=80_000))

    assert adapted(too_many_cpus, pods=4) == one_task(Demand(2, cpu_milli=20_000), 4)


def test_gpus_that_do_not_divide_among_pods_are_left_alone() -> None:
    total = one_task(Demand(4, 625))

    assert adapted(total, pods=5) == total


def test_a_request_wider_than_any_machine_is_split_with_a_role_for_the_rest() -> None:
    wide, rest = adapted(one_task(Demand(20, cpu_milli=1_000))).tasks

    assert (wide.instances, wide.demand) == (2, Demand(8, cpu_milli=400))
    assert (rest.instances, rest.demand) == (1, Demand(4, cpu_milli=200))
    assert (wide.role, rest.role) == ("worker", "worker-rest")


def test_the_width_is_that_of_machines_with_the_demanded_type() -> None:
    asked = Demand(8, gpu_types=frozenset({"V100"}))

    assert adapted(one_task(asked)) == one_task(Demand(2, gpu_types=frozenset({"V100"})), 4)


def test_what_must_share_a_machine_is_never_split() -> None:
    together = Request((Task(Demand(20), same_machine=True),))

    assert adapted(together) == together


def test_machines_that_do_not_tell_gpus_apart_need_no_adaptation() -> None:
    assert adaptation(load_cluster("pai2020-1to5")) is None


@pytest.mark.parametrize(
    ("instances", "ratio", "least"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (30, 0.1, 3), (7, 0.01, 1), (4, 1.0, 4)],
)
def test_an_elastic_gang_starts_with_a_share_of_its_instances_rounded_up(
    instances: int, ratio: float, least: int
) -> None:
    (task,) = let_start_with(ratio)(one_task(Demand(1), instances), 1).tasks

    assert (task.least, task.instances) == (least, instances)


def test_gangs_are_made_elastic_after_they_fit_the_cluster() -> None:
    adapt = let_start_with(0.5, adaptation(HOSTS))

    (task,) = adapt(one_task(Demand(32)), 1).tasks

    assert (task.least, task.instances) == (2, 4)


def test_a_task_that_names_its_least_or_stays_on_one_machine_is_left_alone() -> None:
    own = Task(Demand(1), 8, instances_min=7)
    together = Task(Demand(1), 8, same_machine=True)

    assert let_start_with(0.5)(Request((own, together)), 1).tasks == (own, together)


CLOSE = Closeness(same="rack")


def test_what_is_split_wants_to_be_as_close_as_before() -> None:
    wide = Request((Task(Demand(20)),), CLOSE)
    pods = Request((Task(Demand(4, 500)),), CLOSE)
    elastic = let_start_with(0.5)

    assert adapted(wide).closeness == CLOSE
    assert adapted(pods, pods=4).closeness == CLOSE
    assert adapted(wide, cluster=load_cluster("pool:3")).closeness == CLOSE
    assert elastic(Request((Task(Demand(1), 4),), CLOSE), 1).closeness == CLOSE


def test_a_machine_is_as_wide_as_it_has_gpus_of_the_type() -> None:
    mixed = with_devices(
        MachineId("mixed"), [Device("T4")] * 3 + [Device("A100")], cpu_milli=64_000
    )
    asked = one_task(Demand(4, gpu_types=frozenset({"T4"})))

    parts = adapted(asked, cluster=Cluster("one", (mixed,))).tasks

    assert [(part.demand.gpus, part.instances) for part in parts] == [(3, 1), (1, 1)]
