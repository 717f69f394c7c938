"""Arrays, dependencies, holds, changes, re-runs and use, as commands against a real server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]


def job(call: Call, *words: object) -> str:
    said = call("submit", *words)
    assert said.code == 0, said.err
    return str(said.out.split()[0])


def described(call: Call, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("describe", name, "-o", "json").out)
    return found


def test_a_hundred_trials_run_some_at_a_time(call: Call, files: Path) -> None:
    (files / "trial.yaml").write_text("name: trial\nrun: echo n$INTERLANE_ARRAY_INDEX\n")

    said = call("submit", "trial.yaml", "--array", "5-7%2")

    first = said.out.split()[0]
    name, _, number = first.rpartition("-")
    jobs = [f"{name}-{int(number) + more}" for more in range(3)]
    assert f"(array of 3, to {jobs[-1]})" in said.out
    assert call("wait", *jobs).code == 0
    assert [call("logs", one).out for one in jobs] == ["n5\n", "n6\n", "n7\n"]


def test_one_file_says_who_runs_after_whom(call: Call, files: Path) -> None:
    (files / "two.yaml").write_text(
        "name: first\nrun: sleep 0.2; echo first >> order\n---\n"
        "name: second\nrun: echo second >> order\nafter: [first]\n"
    )

    said = call("submit", "two.yaml")

    first, second = (line.split()[0] for line in said.out.splitlines())
    assert described(call, second)["spec"]["after"] == [{"job": first}]
    assert call("wait", second).code == 0
    assert (files / "order").read_text() == "first\nsecond\n"


def test_a_job_is_held_changed_released_and_run_again(call: Call, files: Path) -> None:
    held = job(call, "quick.yaml", "--hold", "--env", "A=1")

    assert call("ps", "-o", "name", "--status", "held").out.split() == [held]
    assert "user holds it" in call("ps").out
    call("change", held, "--set", "priority=70", "--env", "B=2")
    assert call("change", held).error == (
        "Nothing would change; say what, as in --set priority=80."
    )
    spec = described(call, held)["spec"]
    assert (spec["priority"], spec["env"]) == (70, {"A": "1", "B": "2"})
    assert call("release", held).code == 0
    assert call("wait", held).code == 3
    again = call("rerun", held, "--env", "A=9").out.split()[0]
    assert described(call, again)["spec"]["env"] == {"A": "9", "B": "2"}
    assert call("wait", again).code == 3
    late = call("hold", again)
    assert (late.code, "only jobs that wait" in late.err) == (5, True)


def test_a_job_that_fails_is_tried_again(call: Call, files: Path) -> None:
    (files / "flaky.yaml").write_text(
        "name: flaky\nrun: test -e there || { touch there; exit 75; }\n"
        "retry: {times: 1, codes: [75], wait: 10ms}\n"
    )

    name = job(call, "flaky.yaml")

    assert call("wait", name).code == 0
    found = described(call, name)
    assert (found["attempt"], found["failures"]) == (2, 1)
    assert "job retried  It ended with exit code 75; try 2 of 2" in call("describe", name).out


def test_the_environment_is_made_ready_first(call: Call, files: Path) -> None:
    (files / "venv" / "bin").mkdir(parents=True)
    python = files / "venv" / "bin" / "python"
    python.write_text("#!/bin/sh\necho python of $VIRTUAL_ENV with $MADE\n")
    python.chmod(0o755)
    (files / "env.yaml").write_text(
        f"name: env\nrun: python\nenvironment: {{venv: {files}/venv, setup: export MADE=it}}\n"
        f"---\nname: bad\nrun: python\nenvironment: {{venv: {files}/none}}\n"
        "---\nname: set\nrun: echo never\nenvironment: {setup: 'exit 9'}\n"
    )

    good, bad, failed = (
        line.split()[0] for line in call("submit", "env.yaml").out.splitlines()
    )

    assert call("wait", good).code == 0
    assert call("logs", good).out == f"python of {files}/venv with it\n"
    assert call("wait", bad).code == 127
    assert "is no virtual environment" in call("logs", bad).out
    assert (call("wait", failed).code, call("logs", failed).out) == (9, "")


def test_a_script_of_slurm_is_submitted(call: Call, files: Path) -> None:
    (files / "script.sh").write_text(
        "#!/bin/sh\n#SBATCH -J Batch --gpus=1 --mail-user=x@y\necho $SLURM_JOB_NAME\n"
    )

    said = call("submit", "script.sh")

    name = said.out.split()[0]
    assert "--mail-user means nothing here and is left out" in said.err
    assert call("wait", name).code == 0
    assert call("logs", name).out == "batch\n"


def test_use_is_told_by_user(call: Call, files: Path) -> None:
    call("run", "--", "false")

    told = call("usage").out.splitlines()
    rows = json.loads(call("usage", "--by", "queue", "-o", "json").out)["usage"]

    assert told[0].split()[:2] == ["user", "jobs"]
    assert told[-1].startswith("in all")
    assert rows[0]["account"] == "default"
    assert 0 < rows[0]["wasted_h"] <= rows[0]["held_h"]
