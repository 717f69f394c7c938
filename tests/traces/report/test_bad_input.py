"""What is wrong with a trace is counted and named; a report comes out all the same."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from interlane.model import InvalidFile
from interlane.traces.report.figure import ReportFigure
from interlane.traces.report.report import FIGURES, read, report_on
from interlane.traces.report.tables import TraceTables, read_tables

Write = Callable[..., Path]
Make = Callable[[TraceTables, str], ReportFigure]

JOB = ("j", "i", "ann", "T", 1000, 2000)
TASK = ("j", "worker", 1, "T", 1100, 2000, 600, 29, 50, "MISC")
INSTANCE = ("j", "worker", "n", "w", "i", "T", 1100, 2000, "m")
TAG = ("i", "ann", "", "g", "ctr")
MACHINE = ("m", "MISC", 96, 512, 8)


def findings(tables: TraceTables) -> dict[tuple[str, str], int]:
    return {(one.table, one.what): one.rows for one in tables.findings}


def whole(tables: TraceTables) -> bool:
    """Return whether every figure is made and comes through JSON, which has no NaN."""
    document = json.dumps(report_on(tables).as_dict(), allow_nan=False)
    return len(json.loads(document)["figures"]) == len(FIGURES)


def test_keys_that_do_not_join_are_counted(write: Write) -> None:
    tables = read_tables(
        write(
            job=[JOB],
            task=[TASK, ("other", *TASK[1:])],
            instance=[INSTANCE, ("j", "stranger", *INSTANCE[2:]), (*INSTANCE[:8], "nowhere")],
            tag=[("another", *TAG[1:])],
            machine=[MACHINE],
            sensor=[("j", "t", "nobody", "i", "m", "g", *[1] * 10)],
            metric=[("nobody", "m", 1, 2, *[1] * 8)],
        )
    )

    assert findings(tables) == {
        ("pai_task_table", "job_name is not in pai_job_table"): 1,
        ("pai_task_table", "the job has no group in pai_group_tag_table"): 1,
        ("pai_instance_table", "job_name and task_name are not in pai_task_table"): 1,
        ("pai_instance_table", "machine is not in pai_machine_spec"): 1,
        ("pai_sensor_table", "worker_name is not in pai_instance_table"): 1,
        ("pai_machine_metric", "worker_name is not in pai_instance_table"): 1,
    }
    assert whole(tables)


def test_a_task_without_a_job_still_counts_where_jobs_do_not_matter(
    write: Write, figure: Make
) -> None:
    tables = read_tables(write(job=[JOB], task=[("other", *TASK[1:])]))

    assert figure(tables, "requests").numbers["cpu_p50"].value == 6


def test_rows_that_come_twice_are_counted(write: Write) -> None:
    tables = read_tables(write(job=[JOB, JOB], task=[TASK, TASK], machine=[MACHINE] * 3))

    found = findings(tables)
    assert found["pai_job_table", "job_name came before"] == 1
    assert found["pai_task_table", "job_name and task_name came before"] == 1
    assert found["pai_machine_spec", "machine came before"] == 2
    assert whole(tables)


def test_negative_run_times_are_counted_and_do_not_enter_run_times(
    write: Write, figure: Make
) -> None:
    backward = (*INSTANCE[:6], 5000, 4000, "m")
    tables = read_tables(write(job=[JOB], task=[TASK], instance=[INSTANCE, backward]))

    assert findings(tables) == {
        ("pai_instance_table", "negative run time: it ends before it starts"): 1
    }
    assert figure(tables, "run_times").numbers["instances"].value == 1
    assert whole(tables)


def test_a_clock_that_jumps_far_away_is_counted_and_left_off_the_time_axis(
    write: Write, figure: Make
) -> None:
    jobs = [(f"j{n}", f"i{n}", "ann", "T", 1000 + n, 2000 + n) for n in range(20)]
    jobs.append(("far", "ifar", "ann", "T", 10**12, 10**12 + 5))
    tasks = [
        (name, "worker", 1, "T", start + 5, end, 600, 29, 50, "MISC")
        for name, _, _, _, start, end in jobs
    ]
    tables = read_tables(write(job=jobs, task=tasks))

    what = "clock step: {} is far outside the time of the others"
    found = findings(tables)
    assert found["pai_job_table", what.format("start_s")] == 1
    assert found["pai_task_table", what.format("end_s")] == 1
    assert figure(tables, "submissions").numbers["tasks_per_hour_most"].value == 20
    assert whole(tables)


def test_a_start_before_the_submission_is_counted_and_is_no_wait(
    write: Write, figure: Make
) -> None:
    early = ("j", "worker", 1, "T", 400, 2000, 600, 29, 50, "MISC")
    tables = read_tables(write(job=[JOB], task=[early]))

    assert findings(tables) == {
        ("pai_task_table", "clock step: it starts before it was submitted"): 1
    }
    assert figure(tables, "queueing").numbers == {}
    assert whole(tables)


@pytest.mark.parametrize("seed", range(5))
def test_a_tenth_of_the_rows_damaged_is_counted_to_the_row(write: Write, seed: int) -> None:
    rng = Random(seed)
    jobs = [(f"j{n}", f"i{n}", f"u{n % 7}", "T", 1000 + n, 5000 + n) for n in range(300)]
    tasks = [
        (f"j{n}", "worker", 1 + n % 3, "T", 1100 + n, 5000 + n, 600, 29, 50, "MISC")
        for n in range(300)
    ]
    folder = write(job=jobs, task=tasks, machine=[MACHINE])
    path = folder / "pai_task_table.csv"
    lines = path.read_text().splitlines()
    hurt = sorted(rng.sample(range(300), 30))
    for at in hurt:
        lines[at] = _damaged(lines[at], rng)
    path.write_bytes(b"\n".join(line.encode("utf-8", "surrogateescape") for line in lines))

    tables = read_tables(folder)

    damage = [one for one in tables.findings if one.what.startswith("damaged")]
    assert sum(one.rows for one in damage) == 30
    assert all(one.of == 300 for one in damage)
    assert min(int(one.example.removeprefix("line ")) for one in damage) == hurt[0] + 1
    assert tables.tasks.height == 270
    assert whole(tables)


def _damaged(line: str, rng: Random) -> str:
    fields = line.split(",")
    return rng.choice(
        [
            ",".join(fields[:4]),
            line + ",more",
            ",".join([*fields[:6], "six", *fields[7:]]),
            ",".join([*fields[:6], "nan", *fields[7:]]),
            ",".join([fields[0], "\udcff\udcfe", *fields[2:]]),
            "\x00\x01",
        ]
    )


def test_both_ways_through_a_table_give_the_same_rows(
    tables: TraceTables, write: Write
) -> None:
    folder = write()
    path = folder / "pai_sensor_table.csv"
    path.write_text(path.read_text() + "ragged\n")

    again = read_tables(folder)

    assert again.sensors.equals(tables.sensors)
    assert findings(again) == {
        ("pai_sensor_table", "damaged: the row does not have 16 fields"): 1
    }


def test_a_gzip_and_a_header_line_change_nothing(tables: TraceTables, write: Write) -> None:
    folder = write()
    path = folder / "pai_instance_table.csv"
    header = (
        "job_name,task_name,inst_name,worker_name,inst_id,status,start_time,end_time,machine"
    )
    packed = gzip.compress(f"{header}\n{path.read_text()}".encode())
    path.unlink()
    (folder / "pai_instance_table.csv.gz").write_bytes(packed)

    assert read_tables(folder).instances.equals(tables.instances)


def test_a_cut_gzip_is_refused_in_a_sentence(write: Write) -> None:
    folder = write(job=[JOB])
    (folder / "pai_task_table.csv.gz").write_bytes(gzip.compress(b"x" * 10_000)[:30])

    with pytest.raises(InvalidFile, match="gzip is cut short"):
        read_tables(folder)


def test_a_missing_column_is_named_and_only_its_figures_are_without(
    write: Write, figure: Make
) -> None:
    folder = write(job=[JOB], instance=[INSTANCE], tag=[TAG], machine=[MACHINE])
    (folder / "pai_task_table.csv").write_text(
        "job_name,task_name,inst_num,start_time,end_time,plan_gpu\nj,worker,2,1100,2000,50\n"
    )
    tables = read_tables(folder)

    assert ("pai_task_table", "column plan_cpu is not in the file") in findings(tables)
    assert figure(tables, "requests").missing == ("task.plan_cpu", "task.plan_mem")
    assert figure(tables, "requests").numbers["gpu_p50"].value == 0.5
    assert figure(tables, "over_use").numbers == {}
    assert "task.plan_cpu" in figure(tables, "over_use").sentence
    assert figure(tables, "gangs").missing == ()
    assert whole(tables)


def test_tables_that_are_not_there_are_named_by_what_they_would_tell(
    write: Write, figure: Make
) -> None:
    tables = read_tables(write(task=[TASK]))

    assert figure(tables, "user_skew").missing == ("job.user", "job.job_name")
    assert figure(tables, "recurrence").numbers == {}
    assert figure(tables, "requests").numbers["gpu_p50"].value == 0.5
    assert whole(tables)


def test_without_a_readable_task_there_is_no_report(write: Write) -> None:
    with pytest.raises(InvalidFile, match=r"has no pai_task_table\.csv"):
        read_tables(write(job=[JOB]))
    with pytest.raises(InvalidFile, match="no readable row"):
        read_tables(write(task=[("just", "two")]))


def test_a_group_with_one_value_is_told(tmp_path: Path, figure: Make) -> None:
    path = tmp_path / "jobs.csv"
    rows = "".join(f"j{n},{n},100,g\n" for n in range(9))
    path.write_text(f"job_id,submit_s,duration_s,group\n{rows}")

    tables = read(path)

    what = "group has one value, so that it tells no job from another"
    assert findings(tables)["jobs", what] == 9
    assert "same group" in figure(tables, "recurrence").sentence


def test_a_trace_of_one_job_gives_a_report(write: Write, tmp_path: Path) -> None:
    tables = write(job=[JOB], task=[TASK], instance=[INSTANCE], tag=[TAG], machine=[MACHINE])
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,duration_s\nj,0,100\n")

    assert whole(read_tables(tables))
    assert whole(read(path))


def test_bad_rows_of_our_own_schema_are_counted_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_s,duration_s,gpus\na,0,100,1\nb,5,-7,1\nc,6,0,1\nd,x,10,1\ne,7\nf,8,9,1\n"
    )

    tables = read(path)

    found = findings(tables)
    assert found["jobs", "left out: duration_s: it must be above 0"] == 2
    assert sum(found.values()) == 4
    assert tables.tasks.height == 2
    assert whole(tables)


def test_submissions_that_go_back_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,duration_s\na,90000,1\nb,100,1\nc,200,1\n")

    (step,) = read(path).findings

    assert step.rows == 1
    assert "clock step" in step.what
    assert step.example == "by up to 89,900 s"


def test_use_that_is_negative_is_counted(write: Write) -> None:
    sensor = ("j", "t", "w", "i", "m", "g", -1, *[1] * 9)
    tables = read_tables(write(job=[JOB], task=[TASK], instance=[INSTANCE], sensor=[sensor]))

    assert findings(tables) == {("pai_sensor_table", "a measured use is negative"): 1}
    assert whole(tables)
