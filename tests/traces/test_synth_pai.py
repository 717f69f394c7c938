"""The seven synthetic tables: they join, they are faithful, and they stay within bounds."""

from pathlib import Path

import polars as pl
import pytest

from interlane.model import InvalidField, InvalidFile
from interlane.traces.clusters import load_cluster
from interlane.traces.read import read_trace
from interlane.traces.read.pai2020 import TABLES
from interlane.traces.synth_pai import Scope, Written, write_tables

SCOPE = Scope(days=14, scale=0.05, seed=5)


class Drawn:
    """A small draw, and its tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: Written = write_tables(SCOPE, folder)

    def table(self, name: str) -> pl.DataFrame:
        file = f"pai_{name}.csv"
        columns = TABLES[f"pai_{name}"]
        text = ("job_name", "inst_id", "worker_name", "inst_name", "machine", "user", "group")
        kinds = {column: pl.String() for column in columns if column in text}
        return pl.read_csv(
            self.folder / file,
            has_header=False,
            new_columns=list(columns),
            schema_overrides={
                f"column_{place}": kinds[name]
                for place, name in enumerate(columns, 1)
                if name in kinds
            },
            infer_schema_length=None,
        )


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return Drawn(tmp_path_factory.mktemp("pai"))


def test_the_reader_takes_every_row(drawn: Drawn) -> None:
    trace = read_trace(drawn.folder)

    assert trace.bad_count == 0
    assert trace.jobs == drawn.rows.jobs == SCOPE.jobs
    assert trace.frame.height == drawn.rows.tasks


def test_the_machine_table_is_a_cluster(drawn: Drawn) -> None:
    cluster = load_cluster(str(drawn.folder / "pai_machine_spec.csv"))

    assert len(tuple(cluster)) == drawn.rows.machines
    assert {machine.gpu_type for machine in cluster} == {
        *("CPU", "MISC", "T4", "P100", "V100", "V100M32")
    }


def test_the_headers_are_the_published_ones(drawn: Drawn) -> None:
    for table, columns in TABLES.items():
        header = (drawn.folder / f"{table}.header").read_text().strip()
        with (drawn.folder / f"{table}.csv").open() as file:
            first = file.readline()

        assert header.split(",") == list(columns)
        assert len(first.split(",")) == len(columns)


def test_every_instance_is_within_its_task_and_its_task_within_its_job(drawn: Drawn) -> None:
    tasks = drawn.table("task_table")
    keys = ["job_name", "task_name"]
    within = drawn.table("instance_table").join(tasks, on=keys, how="left", suffix="_task")
    owned = tasks.join(drawn.table("job_table"), on="job_name", how="left", suffix="_job")

    assert within["inst_num"].null_count() == owned["user"].null_count() == 0
    assert (within["start_time"] >= within["start_time_task"]).all()
    assert (within["end_time"] <= within["end_time_task"]).all()
    assert (within["end_time"] > within["start_time"]).all()
    assert (owned["start_time"] >= owned["start_time_job"]).all()
    assert (owned["end_time"] <= owned["end_time_job"]).all()
    counted = within.group_by(keys).agg(pl.len(), pl.col("inst_num").first())
    assert (counted["len"] == counted["inst_num"]).all()


def test_an_instance_runs_on_a_machine_of_its_task_s_kind(drawn: Drawn) -> None:
    keys = ["job_name", "task_name"]
    placed = (
        drawn.table("instance_table")
        .join(drawn.table("task_table"), on=keys, how="left")
        .join(drawn.table("machine_spec"), on="machine", how="left", suffix="_machine")
    )

    assert (placed["gpu_type"] == placed["gpu_type_machine"]).all()
    assert (placed["plan_gpu"].fill_null(0) <= 100 * placed["cap_gpu"]).all()


def test_sensors_and_meters_tell_of_instances_on_their_machines(drawn: Drawn) -> None:
    instances = drawn.table("instance_table")
    specs = drawn.table("machine_spec")
    for table in ("sensor_table", "machine_metric"):
        seen = drawn.table(table).join(instances, on="worker_name", how="left", suffix="_of")

        assert seen["machine_of"].null_count() == 0
        assert (seen["machine"] == seen["machine_of"]).all()
        assert seen["worker_name"].n_unique() == seen.height
    sensors = drawn.table("sensor_table").join(specs, on="machine", how="left")
    card = sensors["gpu_name"].str.strip_prefix("/dev/nvidia").cast(pl.Int64)
    assert (card < sensors["cap_gpu"]).all()


def test_no_machine_holds_much_more_than_it_has_on_average(drawn: Drawn) -> None:
    keys = ["job_name", "task_name"]
    held = (
        drawn.table("instance_table")
        .join(drawn.table("task_table"), on=keys, how="left", suffix="_task")
        .with_columns(
            (pl.col("end_time") - pl.col("start_time")).alias("run_s"),
            pl.col("plan_gpu").fill_null(0),
        )
        .group_by("machine")
        .agg(
            (pl.col("plan_gpu") * pl.col("run_s")).sum().alias("gpu_s"),
            (pl.col("plan_cpu") * pl.col("run_s")).sum().alias("cpu_s"),
        )
        .join(drawn.table("machine_spec"), on="machine")
    )
    times = drawn.table("instance_table")
    span_s = times["end_time"].to_numpy().max() - times["start_time"].to_numpy().min()

    # A twentieth of the machines is few for whole gangs; of all, none holds more than it has.
    most = 125
    assert (held["gpu_s"] <= most * held["cap_gpu"] * span_s).all()
    assert (held["cpu_s"] <= most * held["cap_cpu"] * span_s).all()


def test_a_seed_gives_the_same_bytes_and_another_gives_others(tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        write_tables(Scope(days=2, scale=0.01, seed=seed), tmp_path / name)

    for table in TABLES:
        one, two, other = (
            (tmp_path / name / f"{table}.csv").read_bytes() for name in ("one", "two", "other")
        )
        assert one == two
        assert one != other


@pytest.mark.parametrize(
    "action",
    [{"days": -1.0}, {"days": float("nan")}, {"scale": 0.0}, {"scale": 99.0}, {"seed": -1}],
    ids=str,
)
def test_an_impossible_scope_is_refused(action: dict[str, float]) -> None:
    with pytest.raises(InvalidField, match=next(iter(action))):
        Scope(**action)  # type: ignore[arg-type]


def test_a_scope_without_jobs_is_refused() -> None:
    with pytest.raises(InvalidField, match="hold no job"):
        Scope(days=0.001, scale=0.001)


def test_a_file_is_no_directory_for_tables(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")

    with pytest.raises(InvalidFile, match="name a directory"):
        write_tables(Scope(days=1, scale=0.001), file)
    assert file.read_text() == "precious"


def test_a_draw_that_fails_leaves_no_half_tables(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tables(Scope(days=1, scale=0.01), tmp_path / "half", stop)

    assert list((tmp_path / "half").iterdir()) == []
