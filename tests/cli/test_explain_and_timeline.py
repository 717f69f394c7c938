import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


STATES = {
    5: ("to come", 10.0),
    10: ("waiting", 10.0),
    99: ("waiting", 10.0),
    100: ("running", 100.0),
    150: ("finished", 150.0),
}


@pytest.mark.parametrize("at_s", STATES)
def test_a_job_is_explained_at_any_time(call: Call, trace: Path, lab: Path, at_s: int) -> None:
    words = ("--trace", trace, "--cluster", lab, "--at", at_s)

    answer = json.loads(call("explain", "b", *words, "-o", "json").out)

    assert (answer["state"], answer["since_s"]) == STATES[at_s]
    assert call("explain", "b", *words).out.startswith(f"At {at_s} s job b ")


def test_a_waiting_job_is_told_why_and_who_is_ahead(call: Call, trace: Path, lab: Path) -> None:
    words = ("--trace", trace, "--cluster", lab, "--at", 50)

    answer = json.loads(call("explain", "c", *words, "-o", "json").out)

    assert answer["tier"] == "capacity"
    assert answer["reason"]
    assert answer["remedy"]
    assert answer["ahead"] == ["b"]
    assert "Ahead of it: 1 (b)." in call("explain", "c", *words).out


def test_who_is_ahead_follows_the_order(call: Call, trace: Path, lab: Path) -> None:
    words = ("--trace", trace, "--cluster", lab, "--at", 50, "-o", "json")

    for order, ahead in {"sjf": [], "priority": [], "fair": ["b"], "fifo": ["b"]}.items():
        answer = json.loads(call("explain", "c", *words, "--order", order).out)
        assert answer["ahead"] == ahead, order


def test_a_job_behind_a_strict_head_is_told_so(call: Call, tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "strict.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\na,0,100,1\nb,10,50,2\nc,20,30,1\n")

    words = ("--trace", path, "--cluster", lab, "--at", 50, "--queue", "strict", "-o", "json")
    answer = json.loads(call("explain", "c", *words).out)

    assert (answer["tier"], answer["blocked_by"]) == ("order", "b")


def test_a_refused_job_is_told_for_good(call: Call, tmp_path: Path, lab: Path) -> None:
    path = tmp_path / "never.csv"
    path.write_text("job_id,submit_s,duration_s,cpu_milli\na,0,1,99000\n")

    words = ("--trace", path, "--cluster", lab)
    answer = json.loads(call("explain", "a", *words, "--at", 7, "-o", "json").out)

    assert (answer["state"], answer["tier"]) == ("refused", "never fits")
    assert "refused, never fits" in call("timeline", "a", *words).out


def test_a_timeline_tells_one_life(call: Call, trace: Path, lab: Path) -> None:
    words = ("timeline", "b", "--trace", trace, "--cluster", lab)

    answer = json.loads(call(*words, "-o", "json").out)

    assert [moment["event"] for moment in answer["moments"]] == [
        "submitted",
        "started",
        "finished",
    ]
    assert (answer["waited_s"], answer["ran_s"], answer["total_s"]) == (90, 50, 140)
    assert "started after waiting 90 s on one (GPU 0, 1)" in call(*words).out


def test_a_timeline_tells_of_preemptions(call: Call, trace: Path, lab: Path) -> None:
    words = (
        "timeline",
        "a",
        "--trace",
        trace,
        "--cluster",
        lab,
        "--order",
        "srtf",
        "-o",
        "json",
    )

    answer = json.loads(call(*words).out)

    events = [moment["event"] for moment in answer["moments"]]
    assert "preempted" in events
    assert events[-1] == "finished"
    assert answer["ran_s"] == 100


def test_a_timeline_tells_of_lost_machines(call: Call, trace: Path, lab: Path) -> None:
    words = ("timeline", "a", "--trace", trace, "--cluster", lab, "--failures", "60:10")

    told = [call(*words, "--seed", seed).out for seed in range(5)]

    assert any("s: Machine one was lost." in text for text in told)
    assert all("finished" in text for text in told)
