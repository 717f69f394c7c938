import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.testing.arrivals import habits

Call = Callable[..., Any]
WORDS = ("predict", "arrivals")


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    trace = habits(5, seed=1)
    lines = [
        f"{slot * 600},{one.name},{count:.0f}"
        for one in trace
        for slot, count in enumerate(one.counts)
        if count or slot == 0
    ]
    path = tmp_path / "requests.csv"
    path.write_text("\n".join(("timestamp,function,count", *lines)) + "\n")
    return path


def test_a_model_is_trained_and_tells_the_next_slot(
    call: Call, requests: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.ilarr"

    trained = call(*WORDS, "train", requests, "--slot", 600, "--out", model)
    told = call(*WORDS, "forecast", requests, model, "-o", "json")

    assert trained.code == 0, trained.err
    assert "of 5 functions, sha256" in trained.err
    answer = json.loads(told.out)
    assert answer["slot_s"] == 600.0
    assert set(answer["functions"]) == {f"f{at}" for at in range(5)}
    assert all(0 <= one["chance"] <= 1 for one in answer["functions"].values())
    assert not answer["functions"]["f4"]["warm"]


def test_a_model_tells_further_slots(call: Call, requests: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.ilarr"
    call(*WORDS, "train", requests, "--slot", 600, "--out", model)

    one = json.loads(call(*WORDS, "forecast", requests, model, "-o", "json").out)
    said = call(*WORDS, "forecast", requests, model, "--slots", 12, "-o", "json")
    again = call(*WORDS, "forecast", requests, model, "--slots", 12, "-o", "json")

    hourly = json.loads(said.out)["functions"]["f0"]["slots"]
    assert len(hourly) == 12
    # f0 is asked every sixth slot: twice in twelve.
    assert sum(slot["chance"] > 0.5 for slot in hourly) == 2
    assert hourly[0] == one["functions"]["f0"]["slots"][0]
    assert said.out == again.out
    assert call(*WORDS, "forecast", requests, model, "--slots", 0).code == 2


def test_rules_are_always_shown_beside(call: Call, requests: Path) -> None:
    said = call(*WORDS, "evaluate", requests, "--slot", 600, "-o", "json")

    answer = json.loads(said.out)
    assert list(answer["policies"])[-1] == "trees"
    assert {"keep-alive 10", "hybrid-histogram", "lsth"} < set(answer["policies"])
    assert answer["never_asked"] == 1
    ours = answer["policies"]["trees"]["waste_at_its_cold_rate"]
    assert ours <= answer["policies"]["keep-alive 10"]["waste"]
    cost = {name: one["cost_at_10"] for name, one in answer["policies"].items()}
    assert cost["trees"] == min(cost.values())


def test_the_table_has_a_line_a_policy(call: Call, requests: Path) -> None:
    first, _, head, *lines = call(*WORDS, "evaluate", requests, "--slot", 600).out.splitlines()

    assert first == "requests: 5 of 5 functions judged, 1,080 slots of 600 s"
    assert "waste at its cold rate" in head
    assert lines[-1].startswith("trees")


def test_bad_input_is_one_sentence(call: Call, requests: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "m")
    few = tmp_path / "few.csv"
    few.write_text("timestamp\n5\n")

    assert "model 'magic'" in call(*WORDS, "train", requests, *out, "--model", "magic").error
    assert "slot_s is -1" in call(*WORDS, "train", requests, *out, "--slot", -1).error
    assert "nothing to judge" in call(*WORDS, "evaluate", few).error
    assert "part is 1.5" in call(*WORDS, "evaluate", requests, "--known", 1.5).error
    assert "no arrival model" in call(*WORDS, "forecast", requests, requests).error
    assert "no such file" in call(*WORDS, "evaluate", tmp_path / "none").error
