"""``interlane share simulate``: good tables, bad tables."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Call

from interlane.cli.options import LANE_ORDERS
from interlane.lanes.order import ORDERS

HEADER = "job_id,submit_s,iterations,iteration_ms,persistent_mib,ephemeral_mib"


def table(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "jobs.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def test_each_order_gets_its_figures(tmp_path: Path, call: Call) -> None:
    jobs = table(tmp_path, "long,0,100,1000,1,2", "short,10,10,1000,1,2")

    said = call(
        "share",
        "simulate",
        jobs,
        "--order",
        "fifo",
        "--order",
        "srtf",
        "--switch",
        0,
        "-o",
        "json",
    )

    found = json.loads(said.out)
    assert said.code == 0
    assert found["fifo"]["mean_jct_s"] == pytest.approx((100 + 100) / 2)
    # Asked at 10 s, at the very boundary, the long job does one more iteration.
    assert found["srtf"]["mean_jct_s"] == pytest.approx((110 + 11) / 2)
    assert found["srtf"]["makespan_s"] == found["fifo"]["makespan_s"] == pytest.approx(110)


def test_jobs_overlap_where_it_pays(tmp_path: Path, call: Call) -> None:
    header = f"{HEADER},filled"
    jobs = table(tmp_path, "a,0,10,1000,1,2,0.5", "b,0,10,1000,1,2,0.5", header=header)

    said = call("share", "simulate", jobs, "--sharing", "measured", "-o", "json")

    assert json.loads(said.out)["fair"]["makespan_s"] == pytest.approx(10)


def test_an_empty_estimate_is_none_and_a_missing_column_the_truth(
    tmp_path: Path, call: Call
) -> None:
    header = f"{HEADER},estimate_s"
    rows = ("unknown,0,10,1000,1,2,", "long,0,100,1000,1,2,100")

    untold = call(
        "share",
        "simulate",
        table(tmp_path, *rows, header=header),
        "--order",
        "srtf",
        "-o",
        "json",
    )
    told = call(
        "share",
        "simulate",
        table(tmp_path, *(row.rpartition(",")[0] for row in rows)),
        "--order",
        "srtf",
        "-o",
        "json",
    )

    # Known to be short, it goes first; unknown, it is stopped after one iteration.
    assert json.loads(told.out)["srtf"]["mean_jct_s"] == pytest.approx((10 + 110) / 2, abs=0.1)
    assert json.loads(untold.out)["srtf"]["mean_jct_s"] == pytest.approx(
        (101 + 110) / 2, abs=0.1
    )


def test_a_job_that_never_fits_is_named_and_the_others_run(tmp_path: Path, call: Call) -> None:
    jobs = table(tmp_path, "huge,0,1,1,1,99999", "small,0,1,1,1,1")

    said = call("share", "simulate", jobs, "-o", "json")

    assert json.loads(said.out)["fair"]["refused"] == 1
    assert "the first huge: never fits" in said.err


def test_devices_share_the_jobs(tmp_path: Path, call: Call) -> None:
    jobs = table(tmp_path, "a,0,10,1000,1,2", "b,0,10,1000,1,2")

    said = call("share", "simulate", jobs, "--devices", 2, "-o", "json")

    assert json.loads(said.out)["fair"]["makespan_s"] == pytest.approx(10)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("a,0,0,1,1,1", "iterations is '0', but it must be 1 or more"),
        ("a,0,1,0,1,1", "iteration_ms is '0', but it must be above 0"),
        ("a,-1,1,1,1,1", "submit_s is '-1', but it must be 0 or more"),
        ("a,0,1,1,x,1", "persistent_mib is 'x', but it must be a finite number"),
        ("a,0,1,1,1.5,1", "persistent_mib is '1.5', but it must be a whole number"),
        (",0,1,1,1,1", "job_id is empty"),
    ],
)
def test_a_bad_row_is_named_with_its_line(
    tmp_path: Path, call: Call, row: str, sentence: str
) -> None:
    error = call("share", "simulate", table(tmp_path, "good,0,1,1,1,1", row)).error

    assert "jobs.csv, line 3: " in error
    assert sentence in error


def test_bad_rows_can_be_left_out(tmp_path: Path, call: Call) -> None:
    jobs = table(tmp_path, "a,0,1,1,1,1", "b,0,1,1,1", "c,x,1,1,1,1")

    said = call("share", "simulate", jobs, "--skip-bad", "-o", "json")

    assert json.loads(said.out)["fair"]["jobs"] == 1
    assert "left out 2 bad rows" in said.err


def test_a_job_may_come_once(tmp_path: Path, call: Call) -> None:
    assert (
        "came before"
        in call("share", "simulate", table(tmp_path, "a,0,1,1,1,1", "a,0,1,1,1,1")).error
    )


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (HEADER.replace("submit_s,", ""), "no column 'submit_s'"),
        (f"{HEADER},fill", "column 'fill' is not known; did you mean 'filled'?"),
        (f"{HEADER},zzz", "column 'zzz' is not known; leave it out."),
    ],
)
def test_a_bad_header_is_named(tmp_path: Path, call: Call, header: str, sentence: str) -> None:
    row = ",".join("1" for _ in header.split(","))

    assert sentence in call("share", "simulate", table(tmp_path, row, header=header)).error


def test_no_file_and_no_jobs_are_bad_input(tmp_path: Path, call: Call) -> None:
    assert "there is no such file" in call("share", "simulate", tmp_path / "none.csv").error
    assert "no jobs" in call("share", "simulate", table(tmp_path)).error


def test_unknown_words_are_bad_input(tmp_path: Path, call: Call) -> None:
    jobs = table(tmp_path, "a,0,1,1,1,1")

    assert "did you mean 'srtf'?" in call("share", "simulate", jobs, "--order", "stf").error
    assert (
        "known are: beside, measured, turns"
        in call("share", "simulate", jobs, "--sharing", "auto").error
    )


def test_the_help_names_every_order() -> None:
    assert sorted(LANE_ORDERS.replace(" or", ",").split(", ")) == sorted(ORDERS)
