import pytest

from interlane.kernel.harvesting import SEVERAL, HarvestingScheduler
from interlane.model import (
    Cluster,
    Demand,
    Finished,
    GpuRef,
    Grow,
    Grown,
    Job,
    JobId,
    Machine,
    MachineId,
    MachineLost,
    MachineReturned,
    Placement,
    Preempted,
    Recovered,
    Refusal,
    Request,
    Spot,
    Start,
    Started,
    Submitted,
    Task,
    one_task,
)
from interlane.model.function import Function
from interlane.policy.colocate.gpus import Gpus, gpus_of
from interlane.policy.colocate.place import Bounded, Harvest, Site
from interlane.policy.order import Fifo
from interlane.policy.place import pack
from interlane.policy.policy import Policy
from interlane.testing.harvest import flat_tolls

M0, M1 = (GpuRef(MachineId("m"), number) for number in range(2))
NAMES = ("calm", "touchy", "f")
TOLLS = flat_tolls(NAMES, {("touchy", "f"): 0.5, ("calm", "f"): 0.95})


@pytest.fixture
def scheduler() -> HarvestingScheduler:
    machine = Machine(MachineId("m"), "T4", 1, 8000, 8000, gpu_memory_mib=1000)
    cluster = Cluster("one", (machine,))
    harvest = Harvest(Gpus(gpus_of(cluster)), Bounded(TOLLS), TOLLS)
    return HarvestingScheduler(cluster, Policy(Fifo(), pack()), harvest)


def start(
    scheduler: HarvestingScheduler, name: str, family: str, *, gpu_milli: int = 1000
) -> None:
    demand = Demand(1, gpu_milli, gpu_memory_mib=400)
    job = Job(JobId(name), one_task(demand), 0.0, 0, family=family)
    (wish,) = scheduler.handle(Submitted(job), 0.0)
    assert isinstance(wish, Start)
    scheduler.learn(Started(wish.job_id, wish.placement), 0.0)


def function(number: int = 0, memory_mib: int = 300) -> Function:
    return Function(f"f/{number}", "f", memory_mib)


def test_a_function_runs_beside_a_job_that_bears_it(scheduler: HarvestingScheduler) -> None:
    start(scheduler, "a", "calm")
    site = scheduler.lend(function(), 0, 1.0)
    assert isinstance(site, Site)
    assert site.gpu.id == M0
    assert site.gpu.memory_mib == 300


def test_a_function_waits_beside_one_that_does_not(scheduler: HarvestingScheduler) -> None:
    start(scheduler, "a", "touchy")
    assert isinstance(scheduler.lend(function(), 0, 1.0), Refusal)


def test_functions_make_way_for_a_job_that_starts(scheduler: HarvestingScheduler) -> None:
    assert isinstance(scheduler.lend(function(), 0, 0.0), Site)
    start(scheduler, "a", "touchy")
    assert [one.workload for one in scheduler.take_evicted()] == ["f"]
    assert scheduler.take_evicted() == []


@pytest.mark.parametrize("end", [Finished(JobId("a")), Preempted(JobId("a"))])
def test_what_a_job_held_is_lent_again_when_it_is_gone(
    scheduler: HarvestingScheduler, end: Finished | Preempted
) -> None:
    start(scheduler, "a", "calm")
    scheduler.learn(end, 5.0)
    gpu = scheduler.harvest.gpus.by_id[M0]
    assert (gpu.trainer, gpu.memory_mib) == (None, 1000)


def test_a_machine_that_is_away_lends_nothing(scheduler: HarvestingScheduler) -> None:
    start(scheduler, "a", "calm")
    scheduler.lend(function(), 0, 1.0)
    scheduler.learn(MachineLost(MachineId("m")), 5.0)
    scheduler.learn(MachineLost(MachineId("m")), 6.0)
    assert [one.workload for one in scheduler.take_evicted()] == ["f"]
    assert isinstance(scheduler.lend(function(1, memory_mib=0), 0, 7.0), Refusal)
    scheduler.learn(MachineReturned(MachineId("m")), 8.0)
    gpu = scheduler.harvest.gpus.by_id[M0]
    assert (gpu.trainer, gpu.memory_mib, gpu.functions) == (None, 1000, [])
    assert isinstance(scheduler.lend(function(2), 0, 9.0), Site)


def test_two_jobs_on_one_gpu_bear_what_nobody_knows(scheduler: HarvestingScheduler) -> None:
    start(scheduler, "a", "calm", gpu_milli=500)
    start(scheduler, "b", "calm", gpu_milli=500)
    gpu = scheduler.harvest.gpus.by_id[M0]
    assert (gpu.trainer, gpu.memory_mib, gpu.use) == (SEVERAL, 200, 1.0)
    scheduler.learn(Finished(JobId("a")), 5.0)
    assert (gpu.trainer, gpu.memory_mib, gpu.use) == ("calm", 600, 0.5)


def test_a_job_that_was_there_before_and_grew_trains_on_all_it_holds() -> None:
    machine = Machine(MachineId("m"), "T4", 2, 8000, 8000, gpu_memory_mib=1000)
    cluster = Cluster("two", (machine,))
    harvest = Harvest(Gpus(gpus_of(cluster)), Bounded(TOLLS), TOLLS)
    scheduler = HarvestingScheduler(cluster, Policy(Fifo(), pack()), harvest)
    task = Task(Demand(1, 1000, gpu_memory_mib=400), instances=2, instances_min=1)
    job = Job(JobId("a"), Request((task,)), 0.0, 0, family="calm")
    half = Placement((Spot(MachineId("m"), (0,)),))

    (wish,) = scheduler.handle(Recovered(job, placement=half), 0.0)
    assert isinstance(wish, Grow)
    scheduler.learn(Grown(wish.job_id, wish.more), 0.0)

    gpus = harvest.gpus.by_id
    assert [gpus[name].trainer for name in (M0, M1)] == [
        "calm",
        "calm",
    ]
    scheduler.learn(Finished(job.id), 5.0)
    assert [gpus[name].trainer for name in (M0, M1)] == [None, None]
