"""What a machine lacks is no fault of a job's, nor is the death of what runs it."""

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from interlane.live.driver import reports
from interlane.model import InvalidInput, JobLost
from interlane.model.lifecycle import JobState
from interlane.testing.live import driving, ended, spec, view_of
from interlane.testing.waiting import until

SHORT = [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "START_AGAIN_S", 0.02)
    monkeypatch.setattr(reports, "SHORT_S_MAX", 0.3)


class Lacking:
    """Fails to start processes until it is mended."""

    def __init__(self, number: int) -> None:
        self.number: int | None = number
        self.tries = 0
        self._spawn = os.posix_spawn

    def __call__(self, *args: Any, **more: Any) -> int:  # noqa: ANN401 - as posix_spawn
        if self.number is None:
            return self._spawn(*args, **more)
        self.tries += 1
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", SHORT, ids=lambda one: errno.errorcode[one])
def test_a_job_waits_for_what_the_machine_lacks_however_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with driving(tmp_path) as driver:
        lacking = Lacking(number)
        monkeypatch.setattr(os, "posix_spawn", lacking)
        record = driver.submit(spec(), "ann").result(60)
        until(lambda: lacking.tries > 2 * reports.START_TRIES, "more tries than may fail")

        reason = view_of(driver).job(record.id).reason
        lacking.number = None

        found = ended(driver, record)
        assert found.state is JobState.SUCCEEDED
        assert reason is not None
        assert reason.startswith("The machine lacks ")


def test_a_job_that_waits_for_what_the_machine_lacks_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driving(tmp_path) as driver:
        lacking = Lacking(errno.ENOMEM)
        monkeypatch.setattr(os, "posix_spawn", lacking)
        record = driver.submit(spec(), "ann").result(60)
        until(lambda: lacking.tries > 1, "some tries")

        driver.cancel(record.id, "ann").result(60)

        assert ended(driver, record).state is JobState.CANCELLED


def test_what_is_wrong_with_the_job_itself_still_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driving(tmp_path) as driver:
        monkeypatch.setattr(os, "posix_spawn", Lacking(errno.ENOEXEC))
        record = driver.submit(spec(), "ann").result(60)

        found = ended(driver, record)
        assert found.state is JobState.FAILED
        assert "could not be started 3 times" in (found.reason or "")


@pytest.mark.parametrize("retries", [0, 2])
def test_a_job_that_kills_its_shim_runs_again_within_its_retries(
    tmp_path: Path, retries: int
) -> None:
    with driving(tmp_path) as driver:
        job = spec(run=f"echo . >> {tmp_path}/ran; kill -9 $PPID; sleep 100", retries=retries)
        record = driver.submit(job, "ann").result(60)

        found = ended(driver, record)

        assert found.state is JobState.FAILED
        assert found.reason == (
            "Its shim was killed by SIGKILL. "
            f"It was cut off {retries + 1} times, and retries is {retries}."
        )
        assert (tmp_path / "ran").read_text().count(".") == retries + 1


def test_a_job_whose_shim_was_killed_runs_again_and_says_why(tmp_path: Path) -> None:
    with driving(tmp_path) as driver:
        job = spec(run=f"[ -e {tmp_path}/again ] || {{ touch {tmp_path}/up; sleep 100; }}")
        record = driver.submit(job, "ann").result(60)
        until((tmp_path / "up").exists, "the job")
        (tmp_path / "again").touch()

        claim = tmp_path / "runs" / f"{record.id}.{record.uid}" / "1" / "claim"
        os.kill(json.loads(claim.read_text())["pid"], signal.SIGKILL)

        assert ended(driver, record).state is JobState.SUCCEEDED
        (lost,) = (
            one for one in driver.store.log(0, 100, record.id) if isinstance(one.what, JobLost)
        )
        assert lost.detail["reason"] == "The watcher of its shim was killed."
        assert lost.detail["losses"] == 1


def test_a_job_that_takes_more_memory_than_it_asked_for_says_so(tmp_path: Path) -> None:
    with driving(tmp_path) as driver:
        if "memory" not in driver.engine.groups.limits:  # type: ignore[attr-defined]
            pytest.skip("memory of a group cannot be limited here")
        hog = "python3 -I -S -c 'x = bytearray(400 << 20)'"
        job = spec(run=hog, resources={"memory": "100MB"})
        record = driver.submit(job, "ann").result(60)

        found = ended(driver, record)

        assert found.state is JobState.FAILED
        assert found.reason == "It used more than the 100MB it asked for."


def test_a_gang_of_more_processes_than_may_start_together_is_refused(tmp_path: Path) -> None:
    with driving(tmp_path) as driver, pytest.raises(InvalidInput, match=r"at most 256 proc"):
        driver.submit(spec(gang={"nodes": 1000}, resources={"cpu": "1m"}), "ann")
