"""Names of the version before work for one more version, and say what to write instead."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.cli.renamed import with_new_names

Call = Callable[..., Any]


def test_an_old_option_is_taken_for_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = with_new_names(["simulate", "jobs.csv", "--guess=user_dur", "--guess", "x"])

    assert found == ["simulate", "jobs.csv", "--estimate=user_dur", "--estimate", "x"]
    assert "--guess is called --estimate now" in capsys.readouterr().err


def test_an_old_command_is_taken_for_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert with_new_names(["story", "a"]) == ["timeline", "a"]
    assert with_new_names(["predict", "degradation", "show"]) == ["predict", "slowdown", "show"]
    assert capsys.readouterr().err.count("goes with the next version") == 2


def test_a_job_may_still_be_called_by_an_old_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert with_new_names(["describe", "story"]) == ["describe", "story"]
    assert capsys.readouterr().err == ""


def test_a_policy_may_name_its_estimate_as_before(call: Call, trace: Path, lab: Path) -> None:
    words = ("compare", trace, "--cluster", lab, "-o", "json", "--policy")

    old, new = (call(*words, f"order=sjf,{name}=user_dur") for name in ("guess", "estimate"))

    assert (old.code, new.code) == (0, 0)
    assert figures(old.out) == figures(new.out)


def figures(text: str) -> list[tuple[object, ...]]:
    """What was played, and what came of it."""
    names = ("policy", "estimate", "mean_jct_s", "events")
    return [tuple(run[name] for name in names) for run in json.loads(text)["runs"]]
