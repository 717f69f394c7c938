"""Real processes: their output, their ends, and that no attempt runs twice."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlane.engines.local import shim
from interlane.engines.local.groups import groups_here
from interlane.engines.local.runner import LOST, JobProcess, ProcessRunner, ShimOrder
from interlane.live.port import Attempt, Begun, Ended, NeverBegan
from interlane.model import JobId
from interlane.testing.waiting import is_alive, until

ENV = {"PATH": os.environ["PATH"]}


class Told(list[Ended | NeverBegan]):
    """Collects what a runner tells."""

    def one(self) -> Ended | NeverBegan:
        """Wait for the one report there is."""
        until(lambda: len(self), "a report")
        (report,) = self
        return report


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def runner(tmp_path: Path, told: Told) -> Iterator[ProcessRunner]:
    runner = ProcessRunner(
        tmp_path / "runs",
        told.append,
        log_file_bytes=1_000,
        look_again_s=0.05,
        groups=groups_here(tmp_path),
    )
    yield runner
    runner.close()


def launch(
    *commands: str, job: str = "a-1", grace_s: float = 5.0, limit_s: float | None = None
) -> ShimOrder:
    processes = tuple(JobProcess(("/bin/sh", "-c", command), ENV) for command in commands)
    return ShimOrder(
        Attempt(JobId(job), 1), processes, signal.SIGTERM, grace_s, limit_s=limit_s
    )


def printed(runner: ProcessRunner, attempt: Attempt) -> str:
    return runner.output(attempt, 0, 1 << 20).data.decode()


def is_over(runner: ProcessRunner, attempt: Attempt) -> bool:
    """Tell whether a shim has written how its job ended, and is gone."""
    folder = runner.folder(attempt)
    return (folder / shim.ENDED).exists() and not is_alive(shim_pid(runner, attempt))


def shim_pid(runner: ProcessRunner, attempt: Attempt) -> int:
    said = json.loads((runner.folder(attempt) / shim.CLAIM).read_text())
    return int(said["pid"])


def wait_for(runner: ProcessRunner, attempt: Attempt, text: str) -> None:
    until(lambda: text in printed(runner, attempt), f"{text!r} in the log")


@pytest.mark.parametrize("code", [0, 3])
def test_output_and_exit_code_are_kept(runner: ProcessRunner, told: Told, code: int) -> None:
    order = launch(f"echo hello; echo oops >&2; exit {code}")

    runner.start(order)

    assert told.one() == Ended(order.attempt, code)
    assert sorted(printed(runner, order.attempt).split()) == ["hello", "oops"]


def test_a_signal_counts_as_128_and_its_number(runner: ProcessRunner, told: Told) -> None:
    order = launch("kill -9 $$")

    runner.start(order)

    assert told.one() == Ended(order.attempt, 137)


def test_a_job_is_stopped_with_its_signal(runner: ProcessRunner, told: Told) -> None:
    order = launch("trap 'echo saved; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    runner.start(order)
    wait_for(runner, order.attempt, "up")

    runner.stop(order.attempt)

    assert told.one() == Ended(order.attempt, 7, "stopped")
    assert "saved" in printed(runner, order.attempt)


def test_a_job_that_will_not_stop_is_made_to(runner: ProcessRunner, told: Told) -> None:
    order = launch("trap '' TERM; echo up; while :; do sleep 0.05; done", grace_s=0.3)
    runner.start(order)
    wait_for(runner, order.attempt, "up")

    runner.stop(order.attempt)

    assert told.one() == Ended(order.attempt, 137, "stopped")


def test_a_stop_right_after_the_start_is_not_lost(runner: ProcessRunner, told: Told) -> None:
    order = launch("sleep 1000", grace_s=1.0)
    runner.start(order)

    runner.stop(order.attempt)

    report = told.one()
    assert isinstance(report, Ended)
    assert report.was_stopped


def test_a_job_ends_when_its_time_is_over(runner: ProcessRunner, told: Told) -> None:
    order = launch("sleep 1000", limit_s=0.2)

    runner.start(order)

    assert told.one() == Ended(order.attempt, 143, "limit")


def test_what_a_job_leaves_behind_ends_with_it(
    runner: ProcessRunner, told: Told, tmp_path: Path
) -> None:
    note = tmp_path / "daemon"
    order = launch(f"setsid sh -c 'echo $$ > {note}; exec sleep 1000' & sleep 0.3; exit 4")

    runner.start(order)

    assert told.one() == Ended(order.attempt, 4)
    assert not is_alive(int(note.read_text()))
    assert "left behind (1) end with it" in printed(runner, order.attempt)


def test_a_gang_ends_when_one_of_it_fails(runner: ProcessRunner, told: Told) -> None:
    order = launch("sleep 1000", "sleep 0.1; exit 5", grace_s=1.0)

    runner.start(order)

    assert told.one() == Ended(order.attempt, 5, "failed")


def test_a_missing_folder_fails_as_shells_say_it(runner: ProcessRunner, told: Told) -> None:
    order = launch("true")
    runner.start(ShimOrder(order.attempt, order.processes, 15, 1.0, Path("/nowhere/at/all")))

    assert told.one() == Ended(order.attempt, shim.COULD_NOT_START)
    assert "could not start: No such file or directory" in printed(runner, order.attempt)


def test_logs_do_not_grow_without_bound(runner: ProcessRunner, told: Told) -> None:
    order = launch("i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; done")

    runner.start(order)
    told.one()

    folder = runner.folder(order.attempt)
    kept = sum(path.stat().st_size for path in folder.glob("log.*"))
    found = runner.output(order.attempt, 0, 1 << 20)
    assert kept < 400 * len("line 100\n")
    assert found.begin > 0
    last = runner.output(order.attempt, -9, 100)
    assert last == runner.output(order.attempt, last.begin, 100)
    assert last.data == b"line 400\n"
    assert found.data.startswith(b"line") or b"\nline" in found.data


def test_a_job_outlives_its_server_and_is_adopted(tmp_path: Path, told: Told) -> None:
    first = ProcessRunner(tmp_path / "runs", lambda report: None)
    order = launch("echo up; sleep 0.6; exit 6")
    first.start(order)
    wait_for(first, order.attempt, "up")
    first.close()

    second = ProcessRunner(tmp_path / "runs", told.append)

    assert second.find(order.attempt) == Begun(order.attempt)
    assert told.one() == Ended(order.attempt, 6)
    second.close()


def test_a_job_that_ended_while_nobody_looked_is_told_of(tmp_path: Path, told: Told) -> None:
    first = ProcessRunner(tmp_path / "runs", lambda report: None)
    order = launch("exit 6")
    first.start(order)
    first.close()
    until(lambda: is_over(first, order.attempt))

    second = ProcessRunner(tmp_path / "runs", told.append)

    assert second.find(order.attempt) == Ended(order.attempt, 6)
    second.close()


def test_an_attempt_that_was_never_started_is_fenced_off(
    runner: ProcessRunner, told: Told, tmp_path: Path
) -> None:
    order = launch(f"touch {tmp_path / 'ran'}")

    assert isinstance(runner.find(order.attempt), NeverBegan)
    runner.start(order)  # a shim that comes late

    assert isinstance(told.one(), NeverBegan)
    assert not (tmp_path / "ran").exists()
    assert isinstance(runner.find(order.attempt), NeverBegan)


def test_an_attempt_that_nobody_names_is_found_and_can_be_ended_at_once(
    tmp_path: Path, told: Told
) -> None:
    first = ProcessRunner(tmp_path / "runs", lambda report: None)
    stays, over = launch("trap '' TERM; echo up; sleep 1000"), launch("true", job="b-2")
    first.start(stays)
    first.start(over)
    wait_for(first, stays.attempt, "up")
    until(lambda: is_over(first, over.attempt))
    first.close()
    second = ProcessRunner(tmp_path / "runs", told.append)

    assert second.strangers([stays.attempt]) == []
    assert second.strangers([]) == [stays.attempt]
    second.kill(stays.attempt)

    assert told.one() == Ended(stays.attempt, 137, "stopped")
    assert second.strangers([]) == []
    second.close()


def test_two_shims_of_one_attempt_run_it_once(
    runner: ProcessRunner, told: Told, tmp_path: Path
) -> None:
    order = launch(f"echo ran >> {tmp_path / 'ran'}; sleep 0.5")

    runner.start(order)
    until((tmp_path / "ran").exists, "the job")
    whole = {
        "processes": [
            {
                "argv": ["/bin/sh", "-c", f"echo ran >> {tmp_path / 'ran'}"],
                "env": ENV,
                "memory_bytes_max": None,
            }
        ],
        "signal": 15,
        "grace_s": 1.0,
        "limit_s": None,
        "workdir": "/",
        "log_file_bytes": 1_000,
        "descriptors": 1024,
        "account": None,
        "group": {"marker": "0" * 32, "boot": "another", "folders": {}},
    }
    late = subprocess.run(
        ("python3", "-I", "-S", shim.__file__, str(runner.folder(order.attempt))),
        input=json.dumps(whole).encode(),
        check=False,
    )

    told.one()
    assert late.returncode == 1
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_shim_whose_folder_is_gone_ends(runner: ProcessRunner, told: Told) -> None:
    order = launch("echo up; sleep 0.3")
    runner.start(order)
    wait_for(runner, order.attempt, "up")
    pid = shim_pid(runner, order.attempt)

    shutil.rmtree(runner.folder(order.attempt))

    assert told.one() == Ended(order.attempt, None, "cut off", cause=LOST)
    assert not is_alive(pid)


def test_secrets_are_neither_in_files_nor_in_the_process_list(
    runner: ProcessRunner, told: Told
) -> None:
    env = {**ENV, "TOKEN": "canary-8731"}
    attempt = Attempt(JobId("a-1"), 1)
    process = JobProcess(("/bin/sh", "-c", "echo up; sleep 0.3"), env)
    runner.start(ShimOrder(attempt, (process,), signal.SIGTERM, 1.0))
    wait_for(runner, attempt, "up")

    listed = subprocess.run(("ps", "axww", "-o", "args"), capture_output=True, check=True)
    files = [path for path in runner.folder(attempt).rglob("*") if path.is_file()]

    assert b"canary-8731" not in listed.stdout
    assert files
    assert not [path for path in files if b"canary-8731" in path.read_bytes()]
    assert "canary-8731" not in repr(process)
    told.one()


def test_a_full_disk_costs_output_and_nothing_else(runner: ProcessRunner, told: Told) -> None:
    order = launch("echo lost; exit 3")
    folder = runner.folder(order.attempt)
    folder.mkdir(parents=True)
    (folder / f"{shim.LOG}0").symlink_to("/dev/full")

    runner.start(order)

    assert told.one() == Ended(order.attempt, 3)


def test_an_end_that_a_full_disk_hides_is_told_when_there_is_room(
    runner: ProcessRunner, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = launch("true")
    full = iter((OSError(28, "No space left on device"),) * 3)
    claim = shim.claim

    def claimed(folder: str, words: str) -> int | None:
        if (error := next(full, None)) is not None:
            raise error
        return claim(folder, words)

    monkeypatch.setattr(shim, "claim", claimed)
    runner.folder(order.attempt).mkdir(parents=True)
    (runner.folder(order.attempt) / f"{shim.LOG}0").mkdir()  # so that the shim gives up

    runner.start(order)

    assert told.one() == NeverBegan(order.attempt, "Its shim ended before it had begun.")
    assert next(full, None) is None
