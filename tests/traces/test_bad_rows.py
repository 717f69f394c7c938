"""Bad input gives one sentence with file and line, or a count."""

import gzip
from pathlib import Path

import polars as pl
import pytest

from interlane.model import InvalidFile, UnknownName
from interlane.traces.read import read_trace

SIM = "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user"
POD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time"
POD += ",deletion_time,scheduled_time"
OWN = "job_id,submit_s,duration_s,gpus,gpu_milli,instances,instances_min,same_machine,gpu_types"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time"
HELIOS += ",duration,queue"
DAY = "2020-04-01 00:00:"
CLOSE = "job_id,submit_s,duration_s,role,selectors,tolerations,topology"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster"

GOOD = {
    SIM: "1,1,0,6.0,1.0,MISC,80,ann",
    POD: "a,1000,1024,1,500,,LS,Running,0,10,5",
    OWN: "a,0,10,1,500,2,1,true,T4|P100",
    CLOSE: "a,0,10,ps,zone=a|disk=ssd,team=x,same=rack|pack=zone",
    HELIOS: f"1,u,v,1,4,1,COMPLETED,{DAY}00,{DAY}01,{DAY}09,8,1",
    PHILLY: f"{DAY}00,66.0,1,66.0,11cb48",
}

CASES = {
    "a selector without a value": (CLOSE, "b,0,1,w,zone,,", "selectors is 'zone', but it must"),
    "a toleration of nothing": (CLOSE, "b,0,1,w,,=x,", "tolerations is '=x'"),
    "a closeness of another name": (CLOSE, "b,0,1,w,,,near=rack", "topology is 'near=rack'"),
    "pack and spread": (CLOSE, "b,0,1,w,,,pack=rack|spread=rack", "exclude each other"),
    "the same closeness twice": (CLOSE, "b,0,1,w,,,same=rack|same=zone", "topology is"),
    "roles that want to be elsewhere": (
        CLOSE,
        "a,0,10,w,,,same=zone",
        "topology is 'same=zone', but all rows of a job must agree in it",
    ),
    "too few fields": (SIM, "2,1,0,6.0", "the row has 4 fields, but 8 are expected"),
    "too many fields": (SIM, "2,1,0,6.0,1.0,MISC,80,ann,x", "the row has 9 fields"),
    "letters for a number": (SIM, "2,1,0,six,1.0,MISC,80,ann", "num_cpu is 'six'"),
    "a negative request": (SIM, "2,1,0,6.0,-1,MISC,80,ann", "num_gpu is '-1'"),
    "a request that is not a number": (SIM, "2,1,0,6.0,nan,MISC,80,ann", "num_gpu is 'nan'"),
    "an endless request": (SIM, "2,1,0,inf,1,MISC,80,ann", "num_cpu is 'inf'"),
    "an absurd request": (SIM, "2,1,0,6,1e15,MISC,80,ann", "it must be at most 1,000,000"),
    "half an instance": (SIM, "2,1.5,0,6,1,MISC,80,ann", "it must be a whole number"),
    "no instances": (SIM, "2,0,0,6,1,MISC,80,ann", "it must be 1 or more"),
    "an unknown GPU type": (
        SIM,
        "2,1,0,6,1,X9,80,ann",
        "gpu_type is 'X9', but known GPU types",
    ),
    "a duration of zero": (
        SIM,
        "2,1,0,6,1,MISC,0,ann",
        "duration is '0', but it must be above",
    ),
    "a negative duration": (SIM, "2,1,0,6,1,MISC,-3,ann", "duration is '-3'"),
    "no duration": (SIM, "2,1,0,6,1,MISC,,ann", "duration is missing"),
    "a duration of NaN": (SIM, "2,1,0,6,1,MISC,NaN,ann", "duration is 'NaN'"),
    "a negative time": (SIM, "2,1,-5,6,1,MISC,80,ann", "submit_time is '-5'"),
    "the same id again": (SIM, "1,1,0,6,1,MISC,80,ann", "job_id '1' came before"),
    "no id": (SIM, ",1,0,6,1,MISC,80,ann", "job_id is empty"),
    "more than a whole GPU": (POD, "b,1,1,1,1500,,LS,R,0,9,1", "it must be at most 1,000"),
    "shares of several GPUs": (POD, "b,1,1,2,500,,LS,R,0,9,1", "has them whole"),
    "a GPU of nothing": (POD, "b,1,1,1,0,,LS,R,0,9,1", "needs a share"),
    "an unknown GPU in a list": (POD, "b,1,1,1,500,T4|X9,LS,R,0,9,1", "gpu_spec is 'T4|X9'"),
    "a deletion before creation": (POD, "b,1,1,1,500,,LS,R,9,3,", "cannot precede"),
    "an end before the start": (
        HELIOS,
        f"2,u,v,1,4,1,FAILED,{DAY}00,{DAY}09,{DAY}01,8,1",
        "a job cannot end before it starts",
    ),
    "a time that is none": (PHILLY, "yesterday,66.0,1,66.0,11cb48", "timestamp is 'yesterday'"),
    "the same role again": (OWN, "a,0,10,1,500,2,1,true,", "job_id 'a' came before"),
    "a share of nothing": (OWN, "b,0,10,1,0,2,1,true,", "gpu_milli is '0'"),
    "more needed than there are": (OWN, "b,0,10,1,500,2,3,true,", "must not exceed instances"),
    "maybe on one machine": (OWN, "b,0,10,1,500,2,1,maybe,", "it must be true or false"),
}


def write(folder: Path, *lines: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("case", CASES)
def test_a_bad_row_is_one_sentence_with_file_line_and_remedy(tmp_path: Path, case: str) -> None:
    header, row, what = CASES[case]
    # A blank line counts as a line, but is no row.
    path = write(tmp_path, header, GOOD[header], "", row)

    with pytest.raises(InvalidFile) as caught:
        read_trace(path)

    assert caught.value.line == 4
    assert str(caught.value).startswith(f"{path}, line 4: ")
    assert what in str(caught.value)
    assert str(caught.value).endswith("; mend the row or leave such rows out with --skip-bad.")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", CASES)
def test_a_bad_row_is_left_out_and_counted_when_asked(tmp_path: Path, case: str) -> None:
    header, row, what = CASES[case]
    path = write(tmp_path, header, GOOD[header], "", row)

    trace = read_trace(path, skip_bad=True)

    assert trace.jobs == 1
    assert trace.bad_count == 1
    assert [(bad.file, bad.line) for bad in trace.bad] == [(str(path), 4)]
    assert what in trace.bad[0].what


def test_the_first_bad_row_of_the_file_is_named_whatever_is_wrong_with_it(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, SIM, "1,1,0,6,1,MISC,0,ann", "2,x,0,6,1,MISC,80,ann", "3,1")

    with pytest.raises(InvalidFile, match="line 2: duration"):
        read_trace(path)


def test_only_the_first_thousand_bad_rows_are_kept_but_all_are_counted(tmp_path: Path) -> None:
    bad = [f"{i},1,0,6,1,MISC,0,ann" for i in range(2, 1700)]
    trace = read_trace(write(tmp_path, SIM, GOOD[SIM], *bad), skip_bad=True)

    assert len(trace.bad) == 1000
    assert trace.bad_count == 1698


def test_line_numbers_survive_quoted_fields_that_span_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path, SIM, '1,1,0,6,1,MISC,80,"ann\nor bob, both"', "2,1,0,6,1,MISC,zero,ann"
    )

    with pytest.raises(InvalidFile, match="line 4: duration is 'zero'"):
        read_trace(path)
    assert read_trace(path, skip_bad=True).frame["user"].to_list() == ["ann\nor bob, both"]


def test_a_quote_that_never_closes_is_refused_at_its_line(tmp_path: Path) -> None:
    rest = [f"{i},1,0,6,1,MISC,80,ann" for i in range(2, 9000)]
    path = write(tmp_path, SIM, GOOD[SIM], '1,1,0,6,1,MISC,80,"ann', *rest)

    with pytest.raises(InvalidFile, match="line 3: the row cannot be cut into fields"):
        read_trace(path)


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{SIM}\r\n{GOOD[SIM]}\r\n".encode())

    assert read_trace(path).frame["user"].to_list() == ["ann"]


def test_a_truncated_gzip_is_one_clear_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    whole = gzip.compress("\n".join([SIM, *[GOOD[SIM]] * 99]).encode())
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(InvalidFile, match="the gzip is cut short or damaged"):
        read_trace(path)


def test_a_damaged_gzip_is_one_clear_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00garbage that is no gzip")

    with pytest.raises(InvalidFile, match="the gzip is cut short or damaged"):
        read_trace(path)


def test_a_missing_file_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"nowhere\.csv: there is no such file"):
        read_trace(tmp_path / "nowhere.csv")


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)

    with pytest.raises(InvalidFile, match="the file is empty"):
        read_trace(path)


@pytest.mark.parametrize("header", GOOD)
def test_a_header_alone_has_no_jobs(tmp_path: Path, header: str) -> None:
    with pytest.raises(InvalidFile, match="has no jobs"):
        read_trace(write(tmp_path, header))


def test_a_trace_of_bad_rows_only_has_no_jobs_left(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="no jobs are left after 1 bad rows"):
        read_trace(write(tmp_path, SIM, "1,1,0,6,1,MISC,0,ann"), skip_bad=True)


def test_text_that_is_not_utf8_is_refused_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(f"{SIM}\n1,1,0,6,1,MISC,80,".encode() + b"\xff\xfe\n")

    with pytest.raises(InvalidFile, match="line 2: this is not UTF-8"):
        read_trace(path)


def test_an_unknown_header_names_the_formats(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="of no known format; name one of interlane, pai-sim"):
        read_trace(write(tmp_path, "a,b,c", "1,2,3"))


def test_an_unknown_format_names_the_formats(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'philly'"):
        read_trace(write(tmp_path, SIM, GOOD[SIM]), fmt="philli")


def test_the_wrong_format_names_the_column_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="no column 'timestamp'"):
        read_trace(write(tmp_path, SIM, GOOD[SIM]), fmt="philly")


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="column 'user' twice"):
        read_trace(write(tmp_path, f"{SIM},user", f"{GOOD[SIM]},bob"))


def test_a_directory_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"has no pai_job_table\.csv"):
        read_trace(tmp_path)


def test_a_directory_is_no_single_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="this is a directory"):
        read_trace(tmp_path, fmt="openb")


def test_a_broken_parquet_is_one_clear_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(b"PAR1 but no more")

    with pytest.raises(InvalidFile, match="not a whole Parquet file"):
        read_trace(path)


def test_a_bad_row_of_a_parquet_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    frame = {"job_id": ["a", "b"], "submit_s": [0.0, 1.0], "duration_s": [5.0, -1.0]}
    pl.DataFrame(frame).write_parquet(path)

    with pytest.raises(InvalidFile, match=r"row 2: duration_s is -1\.0"):
        read_trace(path)


def test_an_extra_gpu_type_of_the_cluster_is_known(tmp_path: Path) -> None:
    path = write(tmp_path, SIM, "1,1,0,6,1,X9,80,ann")

    trace = read_trace(path, extra_gpu_types=frozenset({"X9"}))

    assert trace.frame["gpu_types"].to_list() == ["X9"]
