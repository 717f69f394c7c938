"""Exports of Slurm's ``sacct --parsable2``, made here line by line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.model import InvalidFile
from interlane.traces.read import detect, read_trace
from interlane.traces.read.sacct import known_type, seconds_of
from interlane.traces.read.source import Source
from interlane.traces.report.report import read, report_on
from interlane.traces.schema import Trace
from interlane.traces.write import write_trace

FIELDS = {
    "JobID": "100",
    "User": "ann",
    "Account": "vision",
    "JobName": "train",
    "Partition": "gpu",
    "Submit": "2024-05-01T12:00:00",
    "Start": "2024-05-01T12:01:40",
    "End": "2024-05-01T13:01:40",
    "State": "COMPLETED",
    "ReqTRES": "billing=16,cpu=16,gres/gpu=2,mem=64G,node=1",
    "AllocTRES": "billing=16,cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1",
    "NNodes": "1",
    "Timelimit": "1-00:00:00",
    "Priority": "4294",
}


def export(folder: Path, *jobs: dict[str, str], end: str = "", leave_out: str = "") -> Path:
    names = [name for name in FIELDS if name != leave_out]
    lines = ["|".join(names) + end]
    lines += ["|".join((FIELDS | job)[name] for name in names) + end for job in jobs]
    path = folder / "sacct.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def one(trace: Trace) -> dict[str, object]:
    (row,) = trace.frame.to_dicts()
    return row


def test_a_job_is_read_with_what_it_asked_for(tmp_path: Path) -> None:
    path = export(tmp_path, {})

    assert detect(Source(path)) == "sacct"
    trace = read_trace(path)
    row = one(trace)

    assert (row["job_id"], row["user"], row["queue"]) == ("100", "ann", "gpu")
    assert (row["submit_s"], row["waited_s"], row["duration_s"]) == (0, 100, 3600)
    assert (row["instances"], row["gpus"], row["gpu_milli"]) == (1, 2, 1000)
    assert (row["cpu_milli"], row["memory_mib"]) == (16_000, 64 * 1024)
    assert row["timelimit_estimate"] == 86_400
    assert trace.estimates == ("duration", "timelimit_estimate")
    assert row["priority"] == 4294
    # Where it ran is no demand: the user had not named a type.
    assert row["gpu_types"] == ""
    assert trace.notes == ()


def test_seconds_count_from_the_first_submission_and_the_clock_is_kept(tmp_path: Path) -> None:
    trace = read_trace(
        export(
            tmp_path,
            {"JobID": "2", "Submit": "2024-05-01T12:00:30"},
            {"JobID": "1", "Submit": "2024-05-01T12:00:00"},
        )
    )

    assert trace.frame["submit_s"].to_list() == [30, 0]
    # The first of May 2024 was a Wednesday: 6 days after a Thursday's midnight, at noon.
    assert trace.clock_s is not None
    assert trace.clock_s % (7 * 86_400) == 6 * 86_400 + 12 * 3600


@pytest.mark.parametrize(
    ("tres", "instances", "gpus", "cpu_milli", "memory_mib"),
    [
        ("cpu=64,gres/gpu=16,mem=512G,node=2", 2, 8, 32_000, 256 * 1024),
        ("cpu=6,gres/gpu=3,mem=6G,node=2", 3, 1, 2_000, 2 * 1024),
        ("cpu=4,mem=512M,node=1", 1, 0, 4_000, 512),
        ("cpu=4,gres/gpu:a100=1,gres/gpu:v100=1,mem=1.50G,node=1", 1, 2, 4_000, 1536),
    ],
)
def test_a_job_of_several_nodes_is_a_gang(
    tmp_path: Path, tres: str, instances: int, gpus: int, cpu_milli: int, memory_mib: int
) -> None:
    row = one(read_trace(export(tmp_path, {"ReqTRES": tres})))

    assert (row["instances"], row["gpus"]) == (instances, gpus)
    assert (row["cpu_milli"], row["memory_mib"]) == (cpu_milli, memory_mib)


def test_what_was_allocated_serves_where_nothing_was_requested(tmp_path: Path) -> None:
    row = one(read_trace(export(tmp_path, {"ReqTRES": ""})))

    assert (row["gpus"], row["cpu_milli"], row["gpu_types"]) == (2, 16_000, "")


def test_older_versions_tell_gpus_and_memory_for_each_node(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text(
        "JobIDRaw|Submit|Start|Elapsed|State|ReqGRES|ReqCPUS|ReqMem|NNodes\n"
        "7|2018-01-01T00:00:00|2018-01-01T00:00:05|01:00:00|COMPLETED|gpu:v100:4|32|8Gc|2\n"
        "8|2018-01-01T00:00:00|2018-01-01T00:00:05|10:00|FAILED|gpu:2|4|16Gn|1\n"
    )

    first, second = read_trace(path).frame.to_dicts()

    assert (first["instances"], first["gpus"], first["gpu_types"]) == (2, 4, "V100")
    assert (first["cpu_milli"], first["memory_mib"]) == (16_000, 128 * 1024)
    assert (second["gpus"], second["memory_mib"], second["duration_s"]) == (2, 16 * 1024, 600)


def test_a_type_that_the_user_named_is_a_demand_if_somebody_knows_it(tmp_path: Path) -> None:
    named = export(tmp_path, {"ReqTRES": "cpu=1,gres/gpu:a100=1,gres/gpu=1,mem=1G,node=1"})
    assert one(read_trace(named))["gpu_types"] == "A100"

    own = export(tmp_path, {"ReqTRES": "cpu=1,gres/gpu:mi300=1,mem=1G,node=1"})
    nobody = read_trace(own)
    assert one(nobody)["gpu_types"] == ""
    assert nobody.notes == (("a GPU type that nobody knows was asked for, taken as any", 1),)
    cluster = read_trace(own, extra_gpu_types=frozenset({"MI300"}))
    assert one(cluster)["gpu_types"] == "MI300"
    assert cluster.notes == ()


@pytest.mark.parametrize(
    ("slurm", "ours"),
    [
        ("a100", "A100"),
        ("NVIDIA_A100-SXM4-80GB", "A100M80"),
        ("nvidia_a100-pcie-40gb", "A100"),
        ("tesla_v100", "V100"),
        ("geforce_rtx_2080ti", "RTX2080TI"),
        ("h100", "H100"),
        ("3090", "RTX3090"),
        ("abacus", None),
    ],
)
def test_names_of_gpus_are_understood(slurm: str, ours: str | None) -> None:
    known = frozenset({"A100", "A100M80", "V100", "H100", "RTX2080TI", "RTX3090"})

    assert known_type(slurm, known) == ours


def test_steps_and_jobs_that_did_not_run_are_passed_over_and_counted(tmp_path: Path) -> None:
    unknown = {"Start": "Unknown", "End": "Unknown"}
    trace = read_trace(
        export(
            tmp_path,
            {},
            {"JobID": "100.batch"},
            {"JobID": "100.extern"},
            {"JobID": "101_7.0"},
            {"JobID": "101_7"},
            {"JobID": "102", "State": "PENDING", **unknown},
            {"JobID": "103", "State": "RUNNING", "End": "Unknown"},
            {"JobID": "104", "State": "CANCELLED by 1000", "Start": "None"},
            {"JobID": "105", "State": "FAILED", "End": FIELDS["Start"]},
            {"JobID": "106", "State": "CANCELLED by 1000"},
            {"JobID": "107", "State": "TIMEOUT"},
            {"JobID": "108", "State": "NODE_FAIL"},
            {"JobID": "108", "State": "COMPLETED"},
        )
    )

    assert trace.frame["job_id"].to_list() == ["100", "101_7", "106", "107", "108"]
    assert dict(trace.notes) == {
        "passed over: steps of jobs": 3,
        "passed over: jobs that never started": 2,
        "passed over: jobs that have not ended": 1,
        "passed over: jobs that ran for 0 s": 1,
        "passed over: earlier runs of requeued jobs": 1,
    }
    assert trace.bad_count == 0


def test_a_report_lists_what_was_passed_over(tmp_path: Path) -> None:
    path = export(tmp_path, {}, {"JobID": "100.batch"})

    report = report_on(read(path))

    (finding,) = report.quality
    assert (finding.what, finding.rows, finding.of) == ("passed over: steps of jobs", 1, 2)
    (waits,) = [figure for figure in report.figures if figure.key == "queueing"]
    assert waits.numbers["p90"].value == 100


def test_a_start_before_the_submission_is_an_unknown_wait(tmp_path: Path) -> None:
    trace = read_trace(export(tmp_path, {"Start": "2024-05-01T11:59:00"}))

    assert one(trace)["waited_s"] is None
    assert trace.notes == (
        ("clock step: Start is before Submit, so that the wait is unknown", 1),
    )


@pytest.mark.parametrize(
    ("job", "what"),
    [
        ({"Submit": "Unknown"}, "Submit is 'Unknown', but it must be a time"),
        ({"Start": "yesterday"}, "Start is 'yesterday', but it must be a time"),
        ({"End": "2024-05-01T12:00:00"}, "a job cannot end before it starts"),
        ({"JobID": ""}, "JobID is empty"),
        ({"JobName": "a|b"}, "the row has 15 fields, but 14 are expected"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_or_left_out(
    tmp_path: Path, job: dict[str, str], what: str
) -> None:
    path = export(tmp_path, {}, {"JobID": "101"} | job)

    with pytest.raises(InvalidFile, match="line 3") as refused:
        read_trace(path)
    assert what in str(refused.value)
    assert read_trace(path, skip_bad=True).bad_count == 1


def test_the_trailing_separator_of_parsable_is_understood(tmp_path: Path) -> None:
    assert one(read_trace(export(tmp_path, {}, end="|")))["gpus"] == 2


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in ("JobID", "Submit")])
def test_an_export_may_lack_a_column(tmp_path: Path, name: str) -> None:
    path = export(tmp_path, {}, leave_out=name)

    if name in ("Start", "End"):
        with pytest.raises(InvalidFile, match=f"no column '{name}'"):
            read_trace(path)
    else:
        assert one(read_trace(path))["duration_s"] == 3600


def test_jobs_of_one_user_with_one_name_are_one_program(tmp_path: Path) -> None:
    trace = read_trace(
        export(
            tmp_path,
            {"JobID": "1"},
            {"JobID": "2"},
            {"JobID": "3", "User": "bob"},
            {"JobID": "4", "JobName": "test"},
            {"JobID": "5", "JobName": ""},
        )
    )

    first, again, other, test, nameless = trace.frame["group"].to_list()
    assert first == again
    assert len({first, other, test, ""}) == 4
    assert nameless == ""


def test_an_export_survives_our_own_schema(tmp_path: Path) -> None:
    trace = read_trace(export(tmp_path, {}, {"JobID": "101_3", "ReqTRES": "cpu=2,node=2"}))

    write_trace(trace, tmp_path / "own.csv")

    assert read_trace(tmp_path / "own.csv").frame.equals(trace.frame)


@given(
    days=st.integers(0, 400),
    hours=st.integers(0, 23),
    minutes=st.integers(0, 59),
    seconds=st.integers(0, 59),
)
def test_lengths_are_read_as_slurm_writes_them(
    days: int, hours: int, minutes: int, seconds: int
) -> None:
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    text = f"{hours:02}:{minutes:02}:{seconds:02}"

    assert seconds_of(f"{days}-{text}") == expected
    assert seconds_of(text) == expected - days * 86_400
    assert seconds_of(f"{minutes:02}:{seconds:02}.123") == minutes * 60 + seconds


@pytest.mark.parametrize("text", ["UNLIMITED", "Partition_Limit", "", "soon", "1:2:3:4"])
def test_what_is_no_length_is_no_estimate(text: str) -> None:
    assert seconds_of(text) is None
