"""The commands against a real server: what they print, and how they leave."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.live.driver import Driver

Call = Callable[..., Any]

QUICK = "name: quick\nrun: echo hello; exit 3\n"


def submitted(call: Call, file: str) -> str:
    said = call("submit", "-f", file)
    assert said.code == 0, said.err
    return str(said.out.split()[0])


def test_a_job_is_handed_in_waited_for_and_read(call: Call, files: Path) -> None:
    job = submitted(call, "quick.yaml")

    assert call("wait", job).code == 3
    assert call("logs", job).out == "hello\n"
    assert call("logs", "-f", job).out == "hello\n"
    described = json.loads(call("describe", job, "-o", "json").out)
    assert (described["state"], described["exit_code"]) == ("failed", 3)
    assert described["spec"]["workdir"] == str(files)
    assert described["timeline"][0]["kind"] == "Submitted"
    assert "finished  It ended with exit code 3." in call("describe", job).out


def test_a_command_is_run_and_leaves_with_its_code(call: Call, files: Path) -> None:
    said = call("run", "--gpus", 1, "--", "sh", "-c", "echo out; exit 5")

    assert (said.code, said.out) == (5, "out\n")
    assert said.err.startswith("sh-")


def test_the_queue_is_listed_explained_and_cancelled(call: Call, files: Path) -> None:
    first, second = submitted(call, "long.yaml"), submitted(call, "long.yaml")

    listed = call("ps").out
    why = call("explain", second).out
    eta = json.loads(call("eta", second, "-o", "json").out)
    plan = call("plan", "-f", "quick.yaml")
    devices = call("gpus").out
    top = call("top", "--once").out
    cancelled = call("cancel", second, first)

    assert listed.splitlines()[1].split()[:2] == [second, "queued"]
    assert why.startswith(f"Job {second} waits.\ncapacity: ")
    assert eta["state"] == "queued"
    assert (plan.code, plan.out.splitlines()[0]) == (
        0,
        "It would start now on here GPU -, alone.",
    )
    assert devices.count(first) == 2
    assert "queued 1" in top
    assert cancelled.out.split() == [second, "cancelled", first, "stopping"]
    assert call("wait", first).code == 143
    assert "No jobs." in call("ps").out


def test_the_queue_says_why_and_until_when_a_job_waits(call: Call, files: Path) -> None:
    first, second = submitted(call, "long.yaml"), submitted(call, "long.yaml")

    head, row, _ = (line.split("  ") for line in call("ps").out.splitlines())
    asked = json.loads(call("ps", "-o", "json").out)["jobs"]
    wide = call("ps", "-o", "wide").out
    names = call("ps", "-o", "name", "--sort", "oldest").out.split()
    rows = call("ps", "-o", "csv", "--no-headers").out.splitlines()

    assert [one.strip() for one in head if one.strip()] == [
        *("job", "state", "user", "prio", "request", "devices", "waited", "ran", "starts in"),
        "reason",
    ]
    assert {"2 GPU", "capacity"} <= {one.strip() for one in row}
    waits = asked[0]["waiting"]
    assert (waits["tier"], waits["position"]) == ("capacity", 1)
    assert waits["start_p90_s"] >= waits["start_p50_s"] > asked[0]["submitted_s"]
    assert asked[1]["waiting"] is None
    assert "needs room for 1 x (2 GPU)" in wide
    assert names == [first, second]
    assert rows[0].startswith(f"{second},queued,")


def test_jobs_are_listed_by_what_they_are(call: Call, files: Path) -> None:
    first, second = submitted(call, "long.yaml"), submitted(call, "quick.yaml")
    call("wait", second)

    def names(*words: str) -> list[str]:
        return str(call("ps", "-o", "name", *words).out).split()

    assert second in names("--status", "failed", "--name", "qu*", "-n", "1")
    assert names("--status", "running", "--status", "starting") == [first]
    assert names("--queue", "other") == []
    assert names("--user", "nobody") == []
    wrong = call("ps", "--state", "running")
    assert (wrong.code, "say '--status running'" in wrong.err) == (2, True)


def test_a_job_is_described_in_sections_with_dates(call: Call, files: Path) -> None:
    first, second = submitted(call, "long.yaml"), submitted(call, "long.yaml")

    told = call("describe", second).out
    eta = call("eta", second).out
    ended = call("run", "--gpus", 0, "--", "true").err.split()[0]
    over = json.loads(call("describe", ended, "-o", "json").out)

    for section in ("Waits", "Times", "Request", "Runs", "Events"):
        assert f"\n{section}\n" in told
    assert "submitted  20" in told
    assert "exec sleep 1000" in told
    assert "submitted_s" not in told
    assert f"Job {second} is likely to start in about " in eta
    assert "nine times in ten" in eta
    assert 0 < over["ran_s"] == over["ended_s"] - over["started_s"]
    assert first in call("describe", first).out


def test_many_jobs_are_cancelled_and_waited_for_at_once(call: Call, files: Path) -> None:
    jobs = [submitted(call, "long.yaml") for _ in range(3)]
    other = submitted(call, "quick.yaml")

    none = call("cancel")
    both = call("cancel", "x-1", "--all")
    said = call("cancel", "--name", "lo*", "--status", "queued")
    rest = call("cancel", "--all")
    waited = call("wait", *jobs)

    assert none.error == both.error
    assert sorted(said.out.split()[::2]) == sorted(jobs[1:])
    assert jobs[0] in rest.out
    assert waited.code in (1, 143)
    assert call("wait", other).code == 3
    assert call("logs", other, "-n", "0").out == ""
    assert call("logs", other, "-n", "1").out == "hello\n"


def test_help_has_groups_examples_and_short_ways(call: Call) -> None:
    top, ps = call("-h").out, call("ps", "-h").out

    assert [line for line in top.splitlines() if line.startswith("Run jobs")] == ["Run jobs:"]
    assert "Other:" not in top  # every command is in a group
    assert "\nExamples:\n  interlane ps\n" in ps
    assert call("--version").out == call("version").out


def test_plans_say_by_their_code_what_would_be(call: Call, files: Path) -> None:
    submitted(call, "long.yaml")

    waits, never = call("plan", "-f", "long.yaml"), call("plan", "-f", "wide.yaml")

    assert (waits.code, never.code) == (6, 7)
    assert "would wait" in waits.out
    assert "can never run here" in never.out
    refused = call("submit", "wide.yaml")
    assert refused.code == 7
    assert call("wait", refused.out.split()[0]).code == 7


def test_what_ran_can_be_played_under_another_policy(call: Call, files: Path) -> None:
    call("run", "--", "true")

    said = call("simulate", "--from-live", "--order", "sjf", "-o", "json")

    played = json.loads(said.out)
    assert played["jobs"] >= 1
    assert played["cluster"] == "this machine"
    both = call("simulate", "--from-live", "trace.csv").error
    assert both == "Give either a TRACE or --from-live, and not both."


def test_waiting_has_an_end(call: Call, files: Path) -> None:
    job = submitted(call, "long.yaml")

    said = call("wait", job, "--timeout", 0.1)

    assert said.code == 124
    assert f"Job {job} is still" in said.err


def test_a_key_hands_in_once(call: Call, files: Path) -> None:
    said = [call("submit", "-f", "quick.yaml", "--key", "k").out.split()[0] for _ in range(2)]

    assert said[0] == said[1]


def test_roles_and_tokens(
    call: Call,
    files: Path,
    machine: tuple[Driver, str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert call("token", "list").code == 4
    monkeypatch.setenv("INTERLANE_TOKEN", "il_x_y")
    denied = call("ps")

    assert denied.code == 4
    assert "set INTERLANE_TOKEN to a valid one" in denied.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("wait", "none-1"), 2, "There is no job 'none-1'"),
        (("cancel", "none-1"), 2, "There is no job 'none-1'"),
        (("submit", "-f", "none.yaml"), 2, "none.yaml: No such file or directory."),
        (("submit", "-f", "list.yaml"), 2, "list.yaml holds no job"),
        (("submit", "-f", "odd.yaml"), 2, "odd.yaml is not YAML"),
        (("submit", "-f", "extra.yaml"), 2, "nme is not a field of a job"),
        (("ps", "--server", "ftp://x"), 2, "must read like http://"),
        (("ps", "--server", "http://127.0.0.1:9"), 3, "does not answer"),
        (("explain", "a-1", "--at", "3"), 2, "--trace and --at go together"),
        (("up", "--devices", "gpu:1"), 2, "devices is 'gpu:1', but it must read like"),
        (("up", "--order", "none"), 2, "order 'none' is not known"),
        (("up", "--database-url", "nonsense"), 2, "cannot be understood"),
        (("up", "--host", "203.0.113.1"), 2, "would send their token in the open"),
        (("up", "--host", "203.0.113.1", "--behind-proxy"), 1, "cannot be listened on"),
        (("up", "--tls-cert", "cert.pem"), 2, "A certificate needs its key"),
        (("up", "--bound", "conections=3"), 2, "bound 'conections' is not known"),
        (("down",), 2, "there is nothing to end"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    call: Call, files: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    (files / "list.yaml").write_text("- a\n")
    (files / "odd.yaml").write_text("name: [\n")
    (files / "extra.yaml").write_text(f"{QUICK}nme: x\n")

    said = call(*words)

    assert (said.code, said.out) == (code, "")
    assert says in said.err
    assert len(said.err.splitlines()) == 1


def test_without_a_server_the_way_to_one_is_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLANE_SERVER", raising=False)
    monkeypatch.delenv("INTERLANE_TOKEN", raising=False)

    said = call("ps", "--state", tmp_path)

    assert said.code == 3
    assert "start one with 'interlane up'" in said.err
