"""``interlane sweep`` on a real server: trials are jobs, so nothing is lost with a command."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlane.client.client import Client
from interlane.client.connection import Answer
from interlane.model.errors import Unreachable
from interlane.sweep.definition import sweep_of
from interlane.testing.waiting import until
from interlane.usecases.reporter import SILENT
from interlane.usecases.sweep import SweepFollower

Call = Callable[..., Any]

TRAIN = """\
import sys
for epoch in range(int(sys.argv[2])):
    print(f"epoch {epoch} loss={(float(sys.argv[1]) - 3) ** 2 + 1 / (epoch + 1)}", flush=True)
"""
QUARTER = ("--gpus", "0.25", "--metric", "loss")


@pytest.fixture
def train(files: Path) -> tuple[str, ...]:
    """The command of every trial."""
    (files / "train.py").write_text(TRAIN)
    return ("--", sys.executable, str(files / "train.py"))


def test_a_grid_finds_the_best_and_says_how_to_repeat_it(
    call: Call, train: tuple[str, ...]
) -> None:
    said = call("sweep", "--name", "grid", "--set", "lr=1..4", *QUARTER, *train, "{lr}", "2")

    assert said.code == 0, said.err
    assert "sweep grid: 4 trials  ended 4" in said.out
    assert "best: trial 2, loss 0.5\n" in said.out
    assert "train.py 3 2\n  interlane rerun grid-t2-r0-" in said.out
    seen = json.loads(call("sweep", "status", "grid", "-o", "json").out)
    assert (seen["over"], seen["best"]["values"]) == (True, {"lr": "3"})
    assert [one["value"] for one in seen["results"]] == [0.5, 1.5, 1.5, 4.5]
    again = call("sweep", "--name", "grid", "--set", "lr=1..4", *QUARTER, *train, "{lr}", "2")
    assert "There is a sweep grid already; 'interlane sweep resume grid' goes on" in again.error


def test_rounds_give_larger_budgets_to_fewer_trials(call: Call, train: tuple[str, ...]) -> None:
    words = ("--set", "lr=1..9", "--halving", "1..9:3", "-o", "json", *QUARTER)

    said = call("sweep", "--name", "rounds", *words, *train, "{lr}", "{budget}")

    assert said.code == 0, said.err
    seen = json.loads(said.out)
    assert seen["runs"]["ended"] == 9 + 3 + 1
    assert (seen["best"]["values"], seen["best"]["reports"]) == ({"lr": "3"}, 9)


def test_trials_that_fall_behind_are_stopped_while_they_run(
    call: Call, files: Path, train: tuple[str, ...]
) -> None:
    # Three trials, of which one may go on after its first report; all wait for that to be so.
    (files / "waits.py").write_text(
        "import sys, time\n"
        "print('loss =', sys.argv[1], flush=True)\n"
        "while sys.argv[1] != '1':\n    time.sleep(0.05)\n"
    )
    words = ("--set", "lr=1..3", "--halving", "1..9:3", "-o", "json", *QUARTER)

    said = call("sweep", "--name", "race", *words, *train[:2], str(files / "waits.py"), "{lr}")

    assert said.code == 0, said.err
    seen = json.loads(said.out)
    assert (seen["runs"]["ended"], seen["runs"]["stopped"]) == (1, 2)
    assert seen["best"]["values"] == {"lr": "1"}


def test_a_file_describes_a_sweep_and_options_change_it(
    call: Call, files: Path, train: tuple[str, ...]
) -> None:
    (files / "tune.yaml").write_text(
        "set: {lr: [1, 2, 3]}\nmetric: loss\ngoal: max\n"
        f"job:\n  run: {sys.executable} train.py {{lr}} 1\n  resources: {{gpu: 0.25}}\n"
    )

    said = call("sweep", "tune.yaml", "--set", "lr=3..6", "-o", "json")

    assert said.code == 0, said.err
    seen = json.loads(said.out)
    assert (seen["name"], seen["trials"], seen["best"]["values"]) == ("tune", 4, {"lr": "6"})


def test_a_metric_that_is_never_printed_is_a_sentence_and_an_exit_code(
    call: Call, train: tuple[str, ...]
) -> None:
    words = ("--set", "lr=1..2", "--gpus", "0.25", "--metric", "accuracy")

    said = call("sweep", "--name", "mute", *words, *train, "{lr}", "1")

    assert said.code == 1
    assert said.out.count("ended without printing accuracy") == 2
    assert "error: No trial printed accuracy: let them print lines such as" in said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--metric", "loss"), "there is nothing to try; name some, as in --set"),
        (("--set", "lr=", "--metric", "loss"), "lr has no values, so that there are no trials"),
        (("--set", "lr=1,2"), "The sweep has no metric"),
        (("--set", "lr=1,inf", "--metric", "loss"), "must be finite"),
        (("--set", "depth=1..3", "--metric", "loss"), "depth is not in the command"),
        (("--set", "lr", "--metric", "loss"), "must read like NAME=VALUE"),
        (("--set", "lr=1,2", "--metric", "loss", "--min", "--max"), "exclude each other"),
        (("--set", "lr=1,2", "--metric", "loss", "--random", "0"), "from 1 to 5,000 trials"),
    ],
)
def test_what_is_wrong_with_a_sweep_is_said_before_anything_runs(
    call: Call, train: tuple[str, ...], words: tuple[str, ...], says: str
) -> None:
    assert says in call("sweep", *words, *train, "{lr}", "1").error


def test_a_sweep_that_nobody_knows_is_named(call: Call, files: Path) -> None:
    for verb in ("status", "resume", "cancel"):
        assert "There is no sweep 'none'" in call("sweep", verb, "none").error


def test_a_trial_that_can_never_run_ends_the_sweep_at_the_first(
    call: Call, train: tuple[str, ...]
) -> None:
    words = ("--set", "lr=1..9", "--gpus", "64", "--metric", "loss", "--name", "wide")

    said = call("sweep", *words, *train, "{lr}", "1")

    assert said.code in (2, 7), said.err
    assert len(json.loads(call("ps", "-A", "--name", "wide*", "-o", "json").out)["jobs"]) <= 1


def test_what_a_killed_command_has_begun_is_gone_on_with_and_nothing_runs_twice(
    call: Call, files: Path, train: tuple[str, ...]
) -> None:
    gate = files / "gate"
    (files / "gated.py").write_text(
        "import pathlib, sys, time\n"
        f"while int(sys.argv[2]) > 1 and not pathlib.Path({str(gate)!r}).exists():\n"
        "    time.sleep(0.05)\n"
        "print('loss', sys.argv[1])\n"
    )
    words = ["--name", "kept", "--set", "lr=1..9", "--halving", "1..3:3", *QUARTER]
    command = [sys.executable, "-m", "interlane", "sweep", *words, *train[:2]]
    command += [str(files / "gated.py"), "{lr}", "{budget}"]
    process = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL)

    def in_second_round() -> bool:
        seen = call("sweep", "status", "kept", "-o", "json")
        return seen.code == 0 and any(one["rung"] for one in json.loads(seen.out)["results"])

    until(in_second_round, "the second round")
    process.send_signal(signal.SIGKILL)
    process.wait()
    gate.touch()

    said = call("sweep", "resume", "kept", "-o", "json")

    assert said.code == 0, said.err
    seen = json.loads(said.out)
    assert (seen["runs"]["ended"], seen["best"]["values"]) == (9 + 3, {"lr": "1"})
    jobs = json.loads(call("ps", "-A", "--name", "kept*", "-o", "json").out)["jobs"]
    assert len(jobs) == 12


def test_cancelling_ends_all_trials_and_resuming_begins_no_cancelled_one_again(
    call: Call, files: Path, train: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "interlane", "sweep", "--name", "gone", "--set", "lr=1..3"]
    command += [*QUARTER, "--", "sleep 1000 # {lr}"]
    process = subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True)

    def all_there() -> bool:
        seen = call("sweep", "status", "gone", "-o", "json")
        return seen.code == 0 and len(json.loads(seen.out)["results"]) == 3

    until(all_there, "all trials")
    assert call("sweep", "cancel", "gone").out == "3 jobs cancelled\n"
    _, told = process.communicate(timeout=300)

    assert process.returncode == 1
    assert "No trial printed loss" in told
    assert call("sweep", "resume", "gone").code == 1


class Flaky(Client):
    """A server that answers two calls of three; of those that it does not, half were heard."""

    calls = 0

    def _call(self, *words: Any) -> Answer:  # noqa: ANN401 - as they come
        self.calls += 1
        if self.calls % 3:
            return super()._call(*words)
        if self.calls % 2:
            super()._call(*words)
        raise Unreachable("The server does not answer.")


def test_a_server_that_is_away_at_times_costs_no_trial_and_runs_none_twice(
    call: Call, train: tuple[str, ...], files: Path
) -> None:
    job = {"run": f"{sys.executable} train.py {{lr}} 1", "resources": {"gpu": 0.25}}
    said = {"name": "away", "job": {**job, "workdir": str(files)}, "set": {"lr": "1..6"}}
    sweep = sweep_of({**said, "metric": "loss"})

    status = SweepFollower(Flaky(), sweep, SILENT, lambda _: time.sleep(0.05)).follow()

    assert (status.counts()["ended"], status.best and status.best.trial) == (6, 2)
    jobs = json.loads(call("ps", "-A", "--name", "away*", "-o", "json").out)["jobs"]
    assert len(jobs) == 6
