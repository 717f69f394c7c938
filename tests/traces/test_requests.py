from pathlib import Path

import numpy as np
import pytest

from interlane.model import InvalidFile, UnknownName
from interlane.sim.requests import arrivals_of
from interlane.traces.requests import read_requests


def written(path: Path, *lines: str, name: str = "r.csv") -> Path:
    file = path / name
    file.write_text("\n".join(lines) + "\n")
    return file


def counts(path: Path, slot_s: float = 60.0) -> dict[str, list[float]]:
    found = arrivals_of(read_requests(path), slot_s)
    return {one.name: one.counts.tolist() for one in found}


def test_a_column_of_seconds_is_enough(tmp_path: Path) -> None:
    assert counts(written(tmp_path, "0", "10.5", "130")) == {"all": [2.0, 0.0, 1.0]}


def test_functions_and_counts_are_taken_where_there_are_any(tmp_path: Path) -> None:
    path = written(tmp_path, "timestamp,function,count", "0,a,2", "61,b,0", "65,b,3")

    assert counts(path) == {"a": [2.0, 0.0], "b": [0.0, 3.0]}


def test_columns_may_be_in_capitals(tmp_path: Path) -> None:
    path = written(tmp_path, "TIMESTAMP,Function,COUNT", "0,a,2", "65,b,3")

    assert counts(path) == {"a": [2.0, 0.0], "b": [0.0, 3.0]}


def test_dates_with_an_offset_are_brought_to_utc(tmp_path: Path) -> None:
    # The clocks of Berlin went from 3:00 back to 2:00: an hour lies between these two.
    path = written(tmp_path, "time", "2024-10-27T02:30:00+02:00", "2024-10-27 02:30:00.25+0100")

    assert counts(path, 3600.0) == {"all": [1.0, 1.0]}


def test_dates_without_one_are_taken_as_they_stand(tmp_path: Path) -> None:
    # Written by a clock that jumped from 2:00 to 3:00: the hour between is empty.
    path = written(tmp_path, "time", "2024-03-31 01:30:00", "2024-03-31 03:30:00")

    assert counts(path, 3600.0) == {"all": [1.0, 0.0, 1.0]}


def test_slots_begin_at_midnight(tmp_path: Path) -> None:
    (one,) = arrivals_of(
        read_requests(written(tmp_path, "time", "2024-11-19 08:30:00")), 3600.0
    )

    assert one.first % 24 == 8


def test_days_of_azure_that_are_missing_were_not_watched(tmp_path: Path) -> None:
    head = ",".join(
        ["HashOwner", "HashApp", "HashFunction", "Trigger", *map(str, range(1, 1441))]
    )
    row = ",".join(["o", "a", "f", "http", "5", *["0"] * 1439])
    for day in ("d01", "d03"):
        written(tmp_path, head, row, name=f"invocations_per_function_md.anon.{day}.csv")

    (one,) = arrivals_of(read_requests(tmp_path))

    assert len(one) == 3 * 1440
    assert np.flatnonzero(one.active).tolist() == [0, 2880]
    assert one.watched.sum() == 2880


BAD = {
    "no time": (["function,count", "a,1"], "has no time; name a column"),
    "no date": (["time", "2024-11-19 08:30:00", "soon"], "line 3: time is 'soon'"),
    "a negative count": (["timestamp,count", "0,-1"], "line 2: count is '-1'"),
    "half a request": (["timestamp,count", "0,1.5"], "must be a whole number"),
    "a ragged row": (["timestamp,count", "0,1,2"], "line 2: the row has 3 fields"),
    "no rows": (["timestamp"], "no requests"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_sentence(case: str, tmp_path: Path) -> None:
    lines, why = BAD[case]

    with pytest.raises(InvalidFile, match=why):
        read_requests(written(tmp_path, *lines))


def test_bad_rows_can_be_left_out(tmp_path: Path) -> None:
    found = read_requests(
        written(tmp_path, "timestamp,count", "0,1", "x,1", "60,1"), skip_bad=True
    )

    assert (found.frame.height, found.bad.count) == (2, 1)


def test_what_is_not_there_or_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="no such file"):
        read_requests(tmp_path / "none")
    with pytest.raises(UnknownName, match="format of requests 'x'"):
        read_requests(written(tmp_path, "0"), fmt="x")
    with pytest.raises(InvalidFile, match="no files like"):
        read_requests(tmp_path)


@pytest.mark.data
def test_published_traces_have_the_functions_that_their_papers_count(data: Path) -> None:
    found = {
        "azure-functions-2019-sample/azure_fn_2019_minute.csv.gz": 18,
        "azure-functions-2019-sample/azure_fn_2021_first200.csv.gz": 31,
        "servegen-arrivals/servegen_arrivals.csv.gz": 421,
        "pai-v2026-genai/lora_request_trace.csv.gz": 87,
    }
    for file, functions in found.items():
        if (data / file).exists():
            assert len(arrivals_of(read_requests(data / file))) == functions, file
