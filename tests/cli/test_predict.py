import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.testing.runs import recurring
from interlane.traces.read import read_trace

Call = Callable[..., Any]

HEAD = "job_id,submit_s,duration_s,user,group,gpus"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A trace of recurring jobs."""
    many = recurring(300, seed=1)
    rows = zip(many.submit_s, many.duration_s, many.user, many.group, many.gpus, strict=True)
    lines = [f"{n},{at},{long},{user},{group},{gpus:.0f}"
             for n, (at, long, user, group, gpus) in enumerate(rows)]  # fmt: skip
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join((HEAD, *lines)) + "\n")
    return path


def written(path: Path, *rows: str, head: str = HEAD) -> Path:
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


def test_a_model_is_trained_shown_and_applied_and_serves_as_a_estimate(
    call: Call, jobs: Path, lab: Path, tmp_path: Path
) -> None:
    model, estimated = tmp_path / "m.ildur", tmp_path / "guessed.csv"

    trained = call("predict", "duration", "train", jobs, "--out", model)
    shown = json.loads(call("predict", "duration", "show", model, "-o", "json").out)
    applied = call("predict", "duration", "apply", jobs, model, "--out", estimated)

    assert trained.code == applied.code == 0
    assert "A job never seen before is estimated to run" in trained.err
    assert shown["sha256"].startswith(trained.err.split("sha256 ")[1][:16])
    assert (shown["model"], shown["version"], shown["trained_on"]["jobs"]) == ("recall", 1, 300)
    frame = read_trace(estimated).frame
    assert (frame["predicted_p10_s"] <= frame["predicted_s"]).all()
    assert (frame["predicted_s"] <= frame["predicted_p90_s"]).all()
    run = call("simulate", estimated, "--cluster", lab, "--order", "sjf", "--estimate",
               "predicted_s", "-o", "json")  # fmt: skip
    assert json.loads(run.out)["estimate"] == "predicted_s"


@pytest.mark.parametrize("split", ["time", "random"])
def test_the_naive_ones_are_always_shown_beside(call: Call, jobs: Path, split: str) -> None:
    said = call("predict", "duration", "evaluate", jobs, "--split", split, "--model", "cart",
                "-o", "json")  # fmt: skip

    answer = json.loads(said.out)
    assert {name.split(",")[0] for name in answer["models"]} == {
        "cart",
        "mean-per-user",
        "last-run",
    }
    assert answer["learned_from"] + answer["judged"] <= 300
    assert ("last-run, learning" in answer["models"]) == (split == "time")


def test_the_table_has_a_line_a_model(call: Call, jobs: Path) -> None:
    said = call("predict", "duration", "evaluate", jobs, "--model", "recall")

    first, _, head, *lines = said.out.splitlines()
    assert first.startswith("jobs: ")
    assert first.endswith(" 60 judged")
    assert "in P10-P90" in head
    assert [line.split("  ")[0] for line in lines] == [
        "recall",
        "recall, learning",
        "mean-per-user",
        "mean-per-user, learning",
        "last-run",
        "last-run, learning",
    ]


def test_a_group_column_with_one_value_is_said_and_passed_over(
    call: Call, tmp_path: Path
) -> None:
    rows = [f"{n},{n * 100},{50 + n % 3},u{n % 2},all,1" for n in range(20)]
    path = written(tmp_path / "dull.csv", *rows)

    said = call("predict", "duration", "evaluate", path, "--model", "recall", "-o", "json")

    assert said.code == 0
    assert said.err.splitlines() == [
        "All jobs have the group 'all', which tells nothing; they are known by user and "
        "request."
    ]


def test_a_trace_of_one_job_can_be_learned_but_not_judged(call: Call, tmp_path: Path) -> None:
    path = written(tmp_path / "one.csv", "a,0,60,ann,g,1")

    trained = call("predict", "duration", "train", path, "--out", tmp_path / "m.ildur")
    judged = call("predict", "duration", "evaluate", path)

    assert trained.code == 0
    assert "estimated to run 60 s" in trained.err
    assert "too few jobs" in judged.error


BAD: dict[str, tuple[list[str], str]] = {
    "a missing column": (["job_id,submit_s", "a,0"], "of no known format"),
    "a negative run time": ([HEAD, "a,0,-5,ann,g,1"], "line 2: duration_s is '-5'"),
    "no jobs": ([HEAD], "no jobs"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_a_bad_trace_is_one_sentence(case: str, verb: str, call: Call, tmp_path: Path) -> None:
    lines, expected = BAD[case]
    path = written(tmp_path / "bad.csv", *lines[1:], head=lines[0])
    out = ("--out", tmp_path / "m.ildur") if verb == "train" else ()

    assert expected in call("predict", "duration", verb, path, *out).error


def test_what_is_not_known_is_one_sentence(call: Call, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.ildur"
    words = ("predict", "duration")
    assert (
        "model 'magic'" in call(*words, "train", jobs, "--out", out, "--model", "magic").error
    )
    assert (
        "set of keys 'x'"
        in call(*words, "train", jobs, "--out", out, "--model", "cart", "--keys", "x").error
    )
    assert "split 'odd'" in call(*words, "evaluate", jobs, "--split", "odd").error
    assert "no duration model" in call(*words, "show", jobs).error
    assert "no duration model" in call(*words, "apply", jobs, jobs, "--out", out).error
    assert "no such file" in call(*words, "show", tmp_path / "none").error
    where = tmp_path / "no" / "m.ildur"
    assert "no such file" in call(*words, "train", jobs, "--out", where).error


def test_a_program_without_a_group_recurs_by_user_script_and_arguments(tmp_path: Path) -> None:
    rows = (
        "a,0,1,ann,,train.py,--deep",
        "b,0,1,ann,,train.py,--deep",
        "c,0,1,ann,,train.py,--flat",
        "d,0,1,bob,,train.py,--deep",
        "e,0,1,bob,mine,train.py,--deep",
        "f,0,1,bob,,,",
    )
    head = "job_id,submit_s,duration_s,user,group,script,arguments"

    groups = read_trace(written(tmp_path / "programs.csv", *rows, head=head)).frame["group"]

    a, b, c, d, e, f = groups
    assert a == b
    assert len({a, c, d}) == 3
    assert (e, f) == ("mine", "")
