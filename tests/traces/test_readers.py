"""Formats other than the PAI simulator's, on small files with known answers."""

import gzip
import json
from pathlib import Path

import pytest

from interlane.model import InvalidFile
from interlane.traces.jobs import jobs_of
from interlane.traces.read import read_trace
from interlane.traces.read.pai2020 import TABLES
from interlane.traces.write import write_trace


def write(folder: Path, *lines: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join(lines))
    return path


def test_a_pod_runs_from_its_scheduling_to_its_deletion(tmp_path: Path) -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    header += "creation_time,deletion_time,scheduled_time"
    path = write(
        tmp_path,
        header,
        "a,12000,16384,1,460,V100M16|T4|T4,LS,Running,10,100,30",
        "b,4000,1024,0,0,,BE,Pending,20,20,",
    )

    first, second = read_trace(path).frame.to_dicts()

    assert (first["submit_s"], first["duration_s"]) == (10, 70)
    assert (first["gpus"], first["gpu_milli"]) == (1, 460)
    assert (first["cpu_milli"], first["memory_mib"]) == (12000, 16384)
    assert first["gpu_types"] == "T4|V100M16"
    assert first["queue"] == "LS"
    assert (first["waited_s"], second["waited_s"]) == (20, None)
    # Never scheduled and gone at once: a second is the least there is.
    assert (second["submit_s"], second["duration_s"]) == (20, 1)
    assert (second["gpus"], second["gpu_milli"]) == (0, 1000)


def test_pods_without_times_come_one_second_apart(tmp_path: Path) -> None:
    path = write(
        tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli", "a,1,1,1,500", "b,1,1,8,1000"
    )

    frame = read_trace(path).frame

    assert frame["submit_s"].to_list() == [0, 1]
    assert frame["duration_s"].to_list() == [1, 1]
    assert frame["gpus"].to_list() == [1, 8]


def test_flattened_philly_counts_from_the_first_submission(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-09 07:01:55,66.0,4,264.0,11cb48",
        "2017-10-09 07:00:55,2951.0,1,2951.0,6214e9",
    )

    first, second = read_trace(path).frame.to_dicts()

    assert (first["job_id"], first["serial"], first["submit_s"]) == ("0", 0, 60)
    assert (first["gpus"], first["gpu_milli"], first["queue"]) == (4, 1000, "11cb48")
    assert (second["job_id"], second["serial"], second["submit_s"]) == ("1", 1, 0)


def philly_log() -> list[object]:
    day = "2017-10-09 07:"
    detail = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]
    twice = [
        {"start_time": f"{day}10:00", "end_time": f"{day}11:00", "detail": detail},
        {"start_time": f"{day}20:00", "end_time": f"{day}20:30", "detail": detail},
    ]
    return [
        {
            "jobid": "application_1",
            "vc": "v",
            "user": "u",
            "submitted_time": f"{day}05:00",
            "attempts": twice,
        },
        {"jobid": "application_2", "submitted_time": f"{day}04:00", "attempts": []},
    ]


def test_the_philly_log_sums_its_attempts(tmp_path: Path) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(philly_log()))

    trace = read_trace(path, skip_bad=True)

    (job,) = trace.frame.to_dicts()
    # Two attempts of 60 and 30 seconds; three GPUs; submitted a minute after the first.
    assert (job["job_id"], job["duration_s"], job["gpus"]) == ("application_1", 90, 3)
    assert (job["submit_s"], job["user"], job["queue"]) == (60, "u", "v")
    # From 07:05 to its first start at 07:10; the clock begins at 07:04 of a Monday.
    assert job["waited_s"] == 300
    assert trace.clock_s is not None
    assert trace.clock_s % (7 * 86_400) == 4 * 86_400 + 7 * 3600 + 4 * 60
    assert trace.bad_count == 1


def test_a_job_of_the_philly_log_that_never_ran_is_named_by_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(philly_log()))

    with pytest.raises(
        InvalidFile, match=r"entry 2: duration is '0.*', but it must be above 0"
    ):
        read_trace(path)


def test_a_broken_philly_log_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text('[{"jobid": 1},\n nonsense')

    with pytest.raises(InvalidFile, match="line 2: this is not JSON"):
        read_trace(path)


def test_original_helios_columns_are_read(tmp_path: Path) -> None:
    day = "2020-04-01 00:0"
    path = write(
        tmp_path,
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
        "duration,queue",
        f"7,u1,vc1,8,32,1,COMPLETED,{day}1:00,{day}2:00,{day}3:00,60,60",
        f"6,u2,vc2,0,4,1,FAILED,{day}0:00,{day}0:00,{day}0:05,5,0",
    )

    first, second = read_trace(path).frame.to_dicts()

    assert (first["serial"], first["submit_s"], first["duration_s"]) == (7, 60, 60)
    assert (first["gpus"], first["cpu_milli"]) == (8, 32_000)
    assert (first["user"], first["queue"]) == ("u1", "vc1")
    assert (second["gpus"], second["submit_s"]) == (0, 0)
    assert (first["waited_s"], second["waited_s"]) == (60, 0)


def test_our_own_schema_needs_three_columns_only(tmp_path: Path) -> None:
    (row,) = read_trace(
        write(tmp_path, "job_id,submit_s,duration_s", "a,5,7.5")
    ).frame.to_dicts()

    assert (row["submit_s"], row["duration_s"], row["duration"]) == (5, 7.5, 7.5)
    assert (row["role"], row["instances"], row["instances_min"], row["pods"]) == (
        *("worker", 1),
        *(1, 1),
    )
    assert (row["gpus"], row["gpu_milli"], row["same_machine"]) == (0, 1000, False)


def test_rows_of_one_job_are_its_tasks_and_come_together(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "job_id,submit_s,duration_s,role,gpus",
        "a,0,5,ps,0",
        "b,1,5,worker,1",
        "a,0,5,worker,1",
    )

    trace = read_trace(path)

    assert trace.jobs == 2
    assert trace.frame["job_id"].to_list() == ["a", "a", "b"]
    assert trace.frame["role"].to_list() == ["ps", "worker", "worker"]


def test_rows_of_one_job_must_agree(tmp_path: Path) -> None:
    path = write(
        tmp_path, "job_id,submit_s,duration_s,role", "a,0,5,ps", "a,0,6,worker", "b,0,1,ps"
    )

    with pytest.raises(InvalidFile, match="line 3: duration_s is '6', but all rows of a job"):
        read_trace(path)


def test_a_job_with_a_bad_task_is_left_out_whole(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "job_id,submit_s,duration_s,role,gpus",
        *("a,0,5,ps,0", "a,0,5,worker,-1", "b,0,1,ps,0"),
    )

    trace = read_trace(path, skip_bad=True)

    assert trace.frame["job_id"].to_list() == ["b"]
    assert trace.bad_count == 2


def test_a_misspelt_column_is_not_taken_for_a_estimate(tmp_path: Path) -> None:
    path = write(tmp_path, "job_id,submit_s,duration_s,gpu_mili", "a,0,5,500")

    with pytest.raises(InvalidFile, match="did you mean 'gpu_milli'"):
        read_trace(path)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_what_is_written_reads_back_equal(tmp_path: Path, ending: str) -> None:
    path = write(
        tmp_path,
        "job_id,submit_s,duration_s,role,instances,instances_min,gpus,gpu_milli,gpu_types,"
        "same_machine,user,priority,pods,group_dur",
        'a,0.1,5.25,ps,2,1,1,300,T4|P100,true,"ann, of sales",-3,7,',
        "a,0.1,5.25,worker,4,4,2,1000,,false,,-3,4,",
        "b,1e5,0.3,worker,1,1,0,1000,,false,bob,0,1,17.125",
    )
    trace = read_trace(path, skip_bad=True)
    # The first job's two rows disagree in the user, so that only one of them stays.
    assert trace.frame.height == 2

    again = tmp_path / f"again{ending}"
    write_trace(trace, again)
    back = read_trace(again)

    assert back.frame.equals(trace.frame)
    assert back.estimates == trace.estimates == ("duration", "group_dur")


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_labels_and_closeness_read_back_equal(tmp_path: Path, ending: str) -> None:
    path = write(
        tmp_path,
        "job_id,submit_s,duration_s,selectors,tolerations,topology",
        "a,0,5,zone=b|disk=ssd|zone=b,team=x,pack=zone|same=rack",
        "b,0,5,,,",
    )
    trace = read_trace(path)

    again = tmp_path / f"again{ending}"
    write_trace(trace, again)

    assert trace.frame["selectors"].to_list() == ["disk=ssd|zone=b", ""]
    assert read_trace(again).frame.equals(trace.frame)


def test_columns_that_nobody_uses_are_not_written(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "job_id,submit_s,duration_s,topology", "a,5,7.5,"))

    write_trace(trace, tmp_path / "written.csv")

    header = (tmp_path / "written.csv").read_text().splitlines()[0]
    assert "gpu_types" in header
    assert not {"selectors", "tolerations", "topology", "waited_s"} & set(header.split(","))


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "job_id,submit_s,duration_s", "a,5,7.5"))

    for name in ("one.csv.gz", "two.csv.gz"):
        write_trace(trace, tmp_path / name)

    assert (tmp_path / "one.csv.gz").read_bytes() == (tmp_path / "two.csv.gz").read_bytes()


@pytest.mark.parametrize("name", ["trace.xlsx", "no/such/folder/trace.csv"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    trace = read_trace(write(tmp_path, "job_id,submit_s,duration_s", "a,5,7.5"))

    with pytest.raises(InvalidFile):
        write_trace(trace, tmp_path / name)


JOBS = ("j1,i1,ann,Terminated,100,200", "j2,i2,bob,Failed,50,90")
TASKS = (
    "j1,ps,1,Terminated,110,190,600,10,,CPU",
    "j1,worker,4,Terminated,115,195,600,29.5,50,T4",
    "j2,tensorflow,1,Failed,60,80,1200,59,150,V100",
)
INSTANCES = (
    "j1,worker,n1,w1,i1,Terminated,112,150,m1",
    "j1,ps,n2,w2,i1,Terminated,120,198,m1",
    "j1,ps,n3,w3,i1,Running,0,,m1",
)
TAGS = ("i1,ann,,g1,ctr", "i2,bob,V100,g2,bert")


def tables(folder: Path, *, header: bool, **given: tuple[str, ...]) -> Path:
    for name, rows in given.items():
        top = (",".join(TABLES[name]),) if header else ()
        (folder / f"{name}.csv").write_text("\n".join((*top, *rows)) + "\n")
    return folder


@pytest.mark.parametrize("header", [False, True])
def test_the_pai_tables_are_joined(tmp_path: Path, *, header: bool) -> None:
    folder = tables(
        tmp_path,
        header=header,
        pai_job_table=JOBS,
        pai_task_table=TASKS,
        pai_instance_table=INSTANCES,
        pai_group_tag_table=TAGS,
    )

    ps, worker, single = read_trace(folder).frame.to_dicts()

    assert (ps["job_id"], ps["role"], ps["gpus"], ps["cpu_milli"]) == ("j1", "ps", 0, 6000)
    # Submitted at 100; instances run from 112 to 198.
    assert (ps["submit_s"], ps["duration_s"], ps["group"]) == (100, 86, "g1")
    assert (worker["instances"], worker["gpus"], worker["gpu_milli"]) == (4, 1, 500)
    # 29.5 GB; the T4 on which it ran is no demand.
    assert (worker["memory_mib"], worker["gpu_types"]) == (30_208, "")
    # No instances known: the task's own 60 to 80.  1.5 GPUs are two shares of 0.75.
    assert (single["submit_s"], single["duration_s"], single["user"]) == (50, 20, "bob")
    assert (single["gpus"], single["gpu_milli"], single["gpu_types"]) == (2, 750, "V100")


def test_the_roles_of_pai_are_the_tasks_of_one_job(tmp_path: Path) -> None:
    tasks = (*TASKS, "j1,evaluator,1,Terminated,115,195,600,10,100,T4")
    folder = tables(tmp_path, header=False, pai_job_table=JOBS, pai_task_table=tasks)

    jobs, _ = jobs_of(read_trace(folder), estimate=None)

    asked: dict[str, list[tuple[str, int, int]]] = {
        job.id: [
            (task.role, task.instances, task.demand.gpu_milli_total) for task in job.request
        ]
        for job in jobs
    }
    assert asked["j1"] == [("ps", 1, 0), ("worker", 4, 500), ("evaluator", 1, 1000)]
    assert asked["j2"] == [("tensorflow", 1, 1500)]


def test_job_and_task_tables_are_enough(tmp_path: Path) -> None:
    folder = tables(tmp_path, header=False, pai_job_table=JOBS, pai_task_table=TASKS)

    trace = read_trace(folder)

    assert trace.jobs == 2
    # From the tasks: 110 to 195.
    assert trace.frame["duration_s"].to_list() == [85, 85, 20]


TABLE_FAULTS = {
    "a task without a job": (
        *(JOBS, (*TASKS, "j9,ps,1,Failed,1,2,600,10,,CPU")),
        r"pai_task_table\.csv, line 4: job_name is 'j9', but the job table has no such job",
    ),
    "a job without tasks": (
        *(JOBS, TASKS[:2]),
        r"pai_job_table\.csv, line 2: job 'j2' has no usable task",
    ),
    "a job that has not ended": (
        *(JOBS, (*TASKS[:2], "j2,worker,1,Running,60,,600,10,,CPU")),
        r"pai_job_table\.csv, line 2: job 'j2' never started or has not ended",
    ),
    "a task that ends before it starts": (
        *(JOBS, (*TASKS[:2], "j2,worker,1,Failed,60,50,600,10,,CPU")),
        r"pai_task_table\.csv, line 3: end_time is '50'",
    ),
    "the same job twice": (
        *((*JOBS, JOBS[0]), TASKS),
        r"pai_job_table\.csv, line 3: job_name 'j1' came before",
    ),
}


@pytest.mark.parametrize("case", TABLE_FAULTS)
def test_a_fault_in_the_pai_tables_is_named_by_table_and_line(
    tmp_path: Path, case: str
) -> None:
    jobs, tasks, what = TABLE_FAULTS[case]
    folder = tables(tmp_path, header=False, pai_job_table=jobs, pai_task_table=tasks)

    with pytest.raises(InvalidFile, match=what):
        read_trace(folder)
    trace = read_trace(folder, skip_bad=True)
    assert trace.bad_count >= 1
    assert "j1" in trace.frame["job_id"]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("j1,worker,n1,w1,i1,Failed,1,2,m1,x", "the row has 10 fields, but 9 are expected"),
        ("j1,worker", "the row has 2 fields"),
        ("j1,worker,n1,w1,i1,Failed,soon,2,m1", "start_time is 'soon'"),
        ("j1,worker,n1,w1,i1,Failed,1,later,m1", "end_time is 'later'"),
    ],
)
def test_a_bad_instance_is_named_by_its_line(tmp_path: Path, row: str, what: str) -> None:
    folder = tables(
        tmp_path,
        header=True,
        pai_job_table=JOBS,
        pai_task_table=TASKS,
        pai_instance_table=(*INSTANCES, row),
    )

    with pytest.raises(InvalidFile, match=rf"pai_instance_table\.csv, line 5: {what}"):
        read_trace(folder)
    trace = read_trace(folder, skip_bad=True)
    assert trace.bad_count == 1
    assert trace.frame["duration_s"].to_list() == [86, 86, 20]


def test_a_truncated_gzip_among_the_pai_tables_is_refused(tmp_path: Path) -> None:
    folder = tables(tmp_path, header=False, pai_job_table=JOBS, pai_task_table=TASKS)
    packed = gzip.compress("\n".join(INSTANCES * 50).encode())
    (folder / "pai_instance_table.csv.gz").write_bytes(packed[:-20])

    with pytest.raises(
        InvalidFile, match=r"pai_instance_table\.csv\.gz: the gzip is cut short"
    ):
        read_trace(folder)


def test_instances_of_recommendation_models_come_apart_by_side(tmp_path: Path) -> None:
    header = "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,"
    header += "creation_time,scheduled_time,deletion_time"
    path = write(
        tmp_path,
        header,
        "i0,HN,app_0,12,1,120.5,,,500.0",
        "i1,CN,app_0,64,0,256.0,100.0,130.0,400.0",
        "i2,HN,app_1,8,1,32.0,200.0,200.0,",
    )

    before, beside, after = read_trace(path).frame.to_dicts()

    # What was there before the trace came at second 0; what outlives it ends with it.
    assert (before["submit_s"], before["duration_s"], before["waited_s"]) == (0, 500, None)
    assert (after["submit_s"], after["duration_s"]) == (200, 300)
    assert (beside["duration_s"], beside["waited_s"]) == (270, 30)
    assert [one["gpus"] for one in (before, beside, after)] == [1, 0, 1]
    assert (beside["queue"], beside["group"], beside["cpu_milli"]) == ("CN", "app_0", 64_000)
    assert before["memory_mib"] == 123_392


def test_an_instance_that_ends_before_it_starts_is_one_clear_sentence(tmp_path: Path) -> None:
    header = "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,"
    header += "creation_time,scheduled_time,deletion_time"
    path = write(tmp_path, header, "i0,HN,app_0,12,1,1,100,130,120")

    with pytest.raises(InvalidFile, match="it cannot precede the start"):
        read_trace(path)
