import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.testing.coruns import crowded
from interlane.traces.colocation import own

Call = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own.write(crowded(7), tmp_path / "measured")
    return tmp_path / "measured"


@pytest.fixture
def model(folder: Path, tmp_path: Path, call: Call) -> Path:
    path = tmp_path / "m.ildeg"
    said = call("predict", "slowdown", "train", folder, "--out", path)
    assert said.code == 0, said.err
    assert "learned from 49 co-runs of 7 workloads" in said.err
    return path


def test_show_prints_both_directions_of_a_pair(model: Path, call: Call) -> None:
    said = call("predict", "slowdown", "show", model, "w0", "w1", "-o", "json")
    found = json.loads(said.out)
    assert list(found) == [
        "side-by-side/training: w0 beside w1",
        "side-by-side/training: w1 beside w0",
    ]
    assert {one["basis"] for one in found.values()} == {"measured"}


def test_show_states_its_fallback_for_what_was_never_measured(model: Path, call: Call) -> None:
    strange = call("predict", "slowdown", "show", model, "w0", "nobody", "-o", "json")
    elsewhere = call("predict", "slowdown", "show", model, "w0", "w1", "--gpu", "H100")
    assert "unknown" in strange.out
    assert "other gpu" in elsewhere.out


def test_show_says_what_a_model_is(model: Path, call: Call) -> None:
    found = json.loads(call("predict", "slowdown", "show", model, "-o", "json").out)
    assert found["trained_on"]["co_runs"] == 49
    assert found["ways"] == ["side-by-side/training"]


def test_table_has_a_row_for_every_victim(model: Path, call: Call) -> None:
    found = json.loads(call("predict", "slowdown", "table", model, "-o", "json").out)
    assert len(found["lower"]) == len(found["workloads"]) == 7
    assert "on T4" in call("predict", "slowdown", "table", model).out


def test_evaluate_shows_the_naive_ones_beside(folder: Path, call: Call) -> None:
    words = ("predict", "slowdown", "evaluate", folder, "--part", 0.5, "-o", "json")
    found = json.loads(call(*words, "--model", "hinge").out)
    assert list(found["models"]) == ["hinge", "random-forest", "linear", "constant"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--model", "oracle"), "model 'oracle' is not known"),
        (("--split", "magic"), "split 'magic' is not known"),
        (("--way", "mps/p99"), "way to share 'mps/p99' is not known"),
        (("--part", 1.5), "part is 1.5, but it must be between 0 and 1"),
        (("--split", "model", "--probes", 7), "probes is 7, but it must be 0 to 4"),
    ],
)
def test_evaluate_refuses_in_a_sentence(
    words: tuple[object, ...], sentence: str, folder: Path, call: Call
) -> None:
    assert sentence in call("predict", "slowdown", "evaluate", folder, *words).error


def test_bad_co_runs_are_named_with_their_line(folder: Path, call: Call) -> None:
    path = folder / own.CORUNS
    path.write_text(path.read_text().replace("w0,w1,", "w0,ghost,", 1))
    said = call("predict", "slowdown", "train", folder, "--out", folder / "m")
    assert "line 3: aggressor is 'ghost', but profiles.csv does not have it" in said.error


def test_counters_that_are_missing_are_said_and_filled(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    path = folder / own.PROFILES
    rows = path.read_text().splitlines()
    rows[1] = ",".join([*rows[1].split(",")[:-1], ""])
    path.write_text("\n".join(rows) + "\n")
    said = call("predict", "slowdown", "train", folder, "--out", tmp_path / "m")
    assert said.code == 0
    assert "1 workloads lack a counter, the first w0" in said.err


def test_a_way_to_share_with_few_pairs_is_left_out(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    path = folder / own.CORUNS
    path.write_text(f"{path.read_text()}T4,side-by-side,latency,w0,w1,0.5\n")
    words = ("predict", "slowdown", "train", folder, "--out", tmp_path / "m")

    said = call(*words)

    assert said.code == 0
    assert "side-by-side/latency: left out, because fewer than 8 pairs are known" in said.err
    path.write_text("\n".join(path.read_text().splitlines()[:3]) + "\n")
    assert "at least 8 are needed" in call(*words).error


def test_a_folder_without_co_runs_is_refused(tmp_path: Path, call: Call) -> None:
    said = call("predict", "slowdown", "train", tmp_path, "--out", tmp_path / "m")
    assert "the folder has none of coruns.csv (own)" in said.error


def test_two_workloads_make_a_pair(model: Path, call: Call) -> None:
    said = call("predict", "slowdown", "show", model, "w0")
    assert "a pair has two; name the other" in said.error


def test_measure_runs_real_jobs_alone_and_in_pairs(tmp_path: Path, call: Call) -> None:
    words = ("--workload", "mlp/16", "--workload", "matmul/1", "--seconds", 0.5)
    said = call("predict", "slowdown", "measure", "--out", tmp_path / "here", *words)
    assert said.code == 0, said.err
    found = own.read(tmp_path / "here")
    (runs,) = found.coruns.values()
    assert {run[1:3] for run in runs} == {
        (one, other) for one in found.workloads for other in found.workloads
    }
    cpu = found.values[0, :, found.counters.index("host_cpu")]
    assert (cpu > 0).all()
    assert (cpu <= 1.1).all()
    # How much each kept depends on what else this machine does; that is said, too.
    assert ("not to be trusted" in said.err) == (cpu.max() < 0.8)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--workload", "quake"), "workload 'quake' is not known"),
        (("--cores", 0), "cores is 0, but it must be 1 to"),
        (("--seconds", 0), "seconds is 0.0, but it must be above 0"),
        (("--workload", "mlp/16", "--workload", "mlp/16"), "each may be named once"),
        (("--workload", "nowhere:build"), "it said:"),
    ],
)
def test_measure_refuses_in_a_sentence(
    words: tuple[object, ...], sentence: str, tmp_path: Path, call: Call
) -> None:
    said = call("predict", "slowdown", "measure", "--out", tmp_path / "x", *words)
    assert sentence in said.error
