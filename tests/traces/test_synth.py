from pathlib import Path

import polars as pl
import pytest

from interlane.model import Cluster, InvalidField, InvalidInput, Machine, MachineId
from interlane.traces.clusters import load_cluster
from interlane.traces.read import read_trace
from interlane.traces.schema import Trace
from interlane.traces.stats import describe
from interlane.traces.synth import synthesize
from interlane.traces.write import write_trace

PAI = load_cluster("pai2020")
JOBS = 50_000


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthesize(jobs=JOBS, cluster=PAI, seed=3)


def load_of(trace: Trace, cluster: Cluster, column: pl.Expr, capacity: float) -> float:
    asked = trace.frame.select(
        (column * pl.col("instances") * pl.col("duration_s")).sum()
    ).item()
    # Submissions are dense, so that the last one marks the end of the span closely.
    return float(asked / (capacity * trace.frame["submit_s"].to_numpy().max()))


GPU = pl.col("gpus") * pl.col("gpu_milli")


def test_the_same_seed_gives_the_same_trace() -> None:
    one, two, other = (synthesize(jobs=500, cluster=PAI, seed=seed) for seed in (7, 7, 8))

    assert one.frame.equals(two.frame)
    assert not one.frame.equals(other.frame)


@pytest.mark.parametrize("load", [0.5, 0.9, 1.2])
def test_the_gpu_time_asked_for_is_the_wanted_share(load: float) -> None:
    trace = synthesize(jobs=JOBS, cluster=PAI, load=load)

    assert load_of(trace, PAI, GPU, PAI.gpus * 1000) == pytest.approx(load, rel=0.01)


@pytest.mark.parametrize("name", ["pai2020", "pai2020-1to5", "pool:64"])
def test_gpus_run_short_before_cpus(name: str) -> None:
    cluster = load_cluster(name)

    trace = synthesize(jobs=JOBS, cluster=cluster)

    gpu_load = load_of(trace, cluster, GPU, cluster.gpus * 1000)
    cpu_load = load_of(trace, cluster, pl.col("cpu_milli"), cluster.cpu_milli)
    assert cpu_load < gpu_load


def test_shares_are_near_the_published_ones(trace: Trace) -> None:
    # Programs that run a thousand times make the shares of tasks coarse; hence the room.
    frame = trace.frame
    found = describe(trace)

    assert frame.select((GPU == 0).mean()).item() == pytest.approx(0.15, abs=0.05)
    assert frame.select((GPU == 250).mean()).item() == pytest.approx(0.28, abs=0.08)
    assert frame.select((GPU == 1000).mean()).item() == pytest.approx(0.23, abs=0.08)
    assert 3.5 < frame.select(pl.col("instances").mean()).item() < 6.5
    assert frame["instances"].to_numpy().max() <= 512
    assert 350 < frame.select(pl.col("duration_s").median()).item() < 1000
    assert 3000 < frame.select(pl.col("duration_s").mean()).item() < 8000
    assert 0.03 < frame.select((pl.col("gpu_types") != "").mean()).item() < 0.12
    assert found["gangs"]["of_instances"] == pytest.approx(0.85, abs=0.06)  # type: ignore[index]


def test_a_group_tells_more_of_the_duration_than_a_user(trace: Trace) -> None:
    estimates = describe(trace)["estimates"]
    close = {name: one["within_25_percent"] for name, one in estimates.items()}  # type: ignore[attr-defined]

    assert close["user_dur"] < 0.4
    assert close["group_dur"] == pytest.approx(0.78, abs=0.08)
    assert close["group_gpu_dur"] >= close["group_dur"]
    assert trace.estimates == ("duration", "user_dur", "group_dur", "group_gpu_dur")


def test_more_jobs_come_by_day_than_before_dawn() -> None:
    trace = synthesize(jobs=20_000, cluster=PAI, days=14)

    hour = (trace.frame["submit_s"] // 3600 % 24).cast(pl.Int64)
    assert (hour == 15).sum() > 2 * (hour == 4).sum()
    day = (trace.frame["submit_s"] // 86_400 % 7).to_numpy()
    assert (day >= 5).sum() / 2 < 0.95 * (day < 5).sum() / 5
    assert 13.5 * 86_400 < trace.frame["submit_s"].to_numpy().max() < 14 * 86_400


def fits(row: dict[str, object], machine: Machine) -> bool:
    """Tell whether an empty machine hosts one instance."""
    gpus, types = int(str(row["gpus"])), str(row["gpu_types"])
    right = not gpus or not types or machine.gpu_type in types.split("|")
    card = not gpus or int(str(row["gpu_memory_mib"])) <= machine.gpu_memory_mib
    room = all(
        int(str(row[name])) <= getattr(machine, name)
        for name in ("gpus", "cpu_milli", "memory_mib")
    )
    return right and card and room


def small(gpus: int, cpus: int, memory_mib: int, card_mib: int = 16_384) -> Cluster:
    machine = Machine(MachineId("m"), "T4", gpus, cpus * 1000, memory_mib, card_mib)
    return Cluster("small", (machine,))


CLUSTERS = {
    "pai": PAI,
    "one small machine": small(1, 2, 2048),
    "a machine without memory": small(2, 4, 0),
    "cards without memory": small(2, 64, 65_536, 0),
    "a pool": load_cluster("pool:3"),
    "a fifth of pai": load_cluster("pai2020-1to5"),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_instance_fits_some_machine_of_the_empty_cluster(name: str) -> None:
    cluster = CLUSTERS[name]
    kinds = {machine.gpu_type + str(machine.gpus): machine for machine in cluster}.values()

    frame = synthesize(jobs=3000, cluster=cluster, seed=5).frame

    shapes = frame.select(
        "gpus", "gpu_milli", "gpu_memory_mib", "cpu_milli", "memory_mib", "gpu_types"
    ).unique()
    for row in shapes.iter_rows(named=True):
        assert any(fits(row, machine) for machine in kinds), row
    asked = frame.select((GPU * pl.col("instances")).max()).item()
    assert asked <= cluster.gpus * 1000


@pytest.mark.parametrize("jobs", [1, 2, 3, 10, 101])
def test_a_handful_of_jobs_is_a_trace_too(jobs: int, tmp_path: Path) -> None:
    trace = synthesize(jobs=jobs, cluster=PAI)

    write_trace(trace, tmp_path / "t.csv")

    assert read_trace(tmp_path / "t.csv").frame.equals(trace.frame)
    assert trace.jobs == jobs


@pytest.mark.parametrize(
    "action",
    [
        *({"jobs": 0}, {"jobs": -1}, {"load": 0.0}, {"load": -1.0}, {"load": float("nan")}),
        *({"days": 0.0}, {"days": -2.0}, {"days": float("inf")}, {"seed": -1}),
    ],
    ids=str,
)
def test_an_impossible_action_is_refused(action: dict[str, float]) -> None:
    with pytest.raises(InvalidField, match=next(iter(action))):
        synthesize(**({"jobs": 10, "cluster": PAI} | action))  # type: ignore[arg-type]


def test_a_cluster_without_gpus_is_refused() -> None:
    bare = Cluster("bare", (Machine(MachineId("m"), cpu_milli=1000),))

    with pytest.raises(InvalidInput, match="Cluster bare has no GPUs"):
        synthesize(jobs=10, cluster=bare)
