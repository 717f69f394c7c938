"""A daemon that dies costs no job, and the next one lets nobody in too early."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlane.device import rendezvous, wire
from interlane.device.daemon import Daemon
from interlane.device.journal import MemoryJournal, MemoryRecord
from interlane.device.lane_request import LaneRequest
from interlane.device.launch import status
from interlane.device.link import NoDaemon, connected
from interlane.device.settings import DeviceSettings
from interlane.device.specs import DeviceSpec
from interlane.device.wire import Frame, FrameKind
from interlane.testing.waiting import PATIENCE_S, until

from .conftest import MIB, ONE_MIB, Stage, arrival
from .test_passing import CROWD


def test_a_daemon_that_is_killed_and_started_again_costs_no_job(stage: Stage) -> None:
    stage.daemon("--order", "rr")
    jobs = [stage.start("mlp.py", 100_000, name=name, memory_mib=(50, 50)) for name in "abc"]
    until(lambda: all(stage.iterations(job) > 5 for job in jobs))
    booked = stage.device.booked_bytes

    for _ in range(2):
        stage.kill_daemon()
        stage.daemon("--order", "rr")
        assert stage.device.booked_bytes == booked
        until(lambda: not stage.device.is_recovering)
        assert stage.device.booked_bytes == booked
        for job in jobs:
            stage.goes_on(job)

    assert [job.process.poll() for job in jobs] == [None] * 3
    until(lambda: all(job.text.count("\n0x") > 100 for job in jobs))
    losses = [[line for line in job.text.splitlines() if line.startswith("0x")] for job in jobs]
    assert losses[0][:100] == losses[1][:100] == losses[2][:100]


def test_a_lane_has_one_holder_however_often_the_daemon_dies(stage: Stage) -> None:
    stage.daemon("--order", "rr")
    rng, script = random.Random(5), stage.script(CROWD)
    jobs = [
        stage.start(script, stage.address, stage.folder / "lane", shared=False)
        for _ in range(3)
    ]
    for _ in range(5):
        for job in jobs:
            stage.goes_on(job)
        time.sleep(rng.random() * 0.1)
        stage.kill_daemon()
        time.sleep(rng.random() * 0.1)
        stage.daemon("--order", "rr")
    for job in jobs:
        stage.goes_on(job)

    assert not any("not alone" in job.text for job in jobs)


def test_nobody_is_admitted_while_jobs_of_the_daemon_before_are_away(stage: Stage) -> None:
    stage.daemon()
    job = stage.start("mlp.py", 100_000, memory_mib=(500, 400))
    until(lambda: stage.iterations(job) > 5)
    job.process.send_signal(signal.SIGSTOP)
    stage.kill_daemon()

    stage.daemon()
    late = stage.start("mlp.py", 10, name="late", memory_mib=(300, 10))
    until(lambda: stage.states.get("late") == "queued")

    assert stage.device.booked_bytes == 900 * MIB
    assert stage.states["mlp.py"] == "away"
    job.process.send_signal(signal.SIGCONT)
    until(lambda: not stage.device.is_recovering)
    # The stopped job is back, with its 900 MiB; the late one does not fit beside it.
    assert stage.states["late"] == "queued"
    job.process.send_signal(signal.SIGKILL)
    late.finished()


def test_a_job_that_is_queued_waits_for_the_next_daemon(stage: Stage) -> None:
    stage.daemon()
    large = stage.start("mlp.py", 100_000, name="large", memory_mib=(500, 400))
    until(lambda: stage.iterations(large) > 5)
    queued = stage.start("mlp.py", 10, name="queued", memory_mib=(300, 10))
    until(lambda: stage.states.get("queued") == "queued")

    stage.kill_daemon()
    until(lambda: "the job waits for a new one" in queued.text)
    stage.daemon()

    until(lambda: stage.states.get("queued") == "queued")
    large.process.send_signal(signal.SIGKILL)
    queued.finished()


def test_a_daemon_that_knows_nobody_waits_for_all_though_somebody_comes_and_goes(
    tmp_path: Path,
) -> None:
    (tmp_path / "s.lock").touch()  # there was a daemon here, and its journal is lost
    daemon = Daemon(
        DeviceSettings((DeviceSpec("cpu", 10 * MIB),), tmp_path / "s", grace_s=60.0)
    )
    with arrival(daemon, 1) as line:
        line.send(wire.packed(Frame(FrameKind.BYE, 1)))
    daemon.turn()

    assert daemon.devices[0].jobs == {}
    assert daemon.devices[0].is_recovering
    daemon.close()
    # If this one had been killed, the next would know nobody either.
    assert MemoryJournal(tmp_path / "s.journal").read() is None


DIES_AS_IT_ADMITS = """
import os, signal, sys
from pathlib import Path
from interlane.device.daemon import Daemon
from interlane.device.peers import Peer
from interlane.device.settings import DeviceSettings
from interlane.device.specs import DeviceSpec
from interlane.device.wire import FrameKind

send = Peer.send

def deadly_send(peer, frame, descriptors=()):
    send(peer, frame, descriptors)
    if frame.kind is FrameKind.ADMIT:
        os.kill(os.getpid(), signal.SIGKILL)

Peer.send = deadly_send
Daemon(DeviceSettings((DeviceSpec("cpu", 1 << 20),), Path(sys.argv[1]))).run()
"""


def test_whoever_was_told_that_it_is_in_is_known_to_the_next_daemon(tmp_path: Path) -> None:
    path = tmp_path / "s"
    daemon = subprocess.Popen([sys.executable, "-c", DIES_AS_IT_ADMITS, str(path)])
    until(path.exists, "the daemon")
    with connected(path) as line:
        line.send(
            wire.packed(LaneRequest("job", persistent_bytes=1, ephemeral_bytes=1).hello(7))
        )
        assert daemon.wait(PATIENCE_S) == -signal.SIGKILL

        kept = MemoryJournal(path.with_suffix(".journal")).read()

    assert kept is not None
    assert [(one.key, one.pid) for one in kept] == [(7, os.getpid())]


def test_an_iteration_that_may_take_long_may_do_so_under_the_next_daemon(
    stage: Stage,
) -> None:
    words = ("--hung-after", "0.2", "--keep-hung", "--order", "rr")
    stage.daemon(*words)
    with (
        stage.client("long", **ONE_MIB) as long,
        stage.client("other", **ONE_MIB) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        for _ in range(5):
            with long.iteration():
                pass
        long.begin()
        long.extend(1000)
        stage.kill_daemon()
        stage.daemon(*words)
        until(lambda: not stage.device.is_recovering)

        waiting = pool.submit(other.begin)
        until(lambda: long.revoked)
        time.sleep(2.5)  # two looks of the daemon
        long.end()
        waiting.result(PATIENCE_S)

    assert "for too long" not in stage.log


def test_a_daemon_that_dies_before_it_answers_counts_as_none(tmp_path: Path) -> None:
    with rendezvous.listening(tmp_path / "s") as listener, ThreadPoolExecutor(1) as pool:
        listener.setblocking(True)
        asked = pool.submit(status, tmp_path / "s")
        line, _ = listener.accept()
        until(lambda: line.recv(1, socket.MSG_PEEK))
        line.close()  # with the question unread

        with pytest.raises(NoDaemon):
            asked.result(PATIENCE_S)


def test_a_job_that_the_next_daemon_does_not_take_is_told_why(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.daemon("--device", "cpu:1GiB")
    with stage.client(device=1, **ONE_MIB):
        stage.kill_daemon()

        stage.daemon()

        sentence = "the new daemon does not take the job: There is no device 1; there are 1."
        until(lambda: sentence in capfd.readouterr().err)


RECORD = MemoryRecord(7, "a.1", "a", os.getpid(), 1, 0, 3, 40, 50, 60, -2, is_declared=True)


def test_a_journal_tells_who_is_still_there(tmp_path: Path) -> None:
    journal = MemoryJournal(tmp_path / "journal")
    journal.begin([])
    journal.keep(RECORD)
    journal.keep(MemoryRecord(8, "b.2", "b", 2, 1, 0, 3, 40, 50, 60, 0, is_declared=False))
    journal.drop(8)
    journal.close()

    assert MemoryJournal(tmp_path / "journal").read() == [RECORD]


@pytest.mark.parametrize(
    "line",
    ["", "{", "null", "[]", '{"left": "x"}', '{"key": 1}', "\0\0", '{"left": 1' * 100_000],
)
def test_lines_of_a_journal_that_make_no_sense_are_passed_over(
    tmp_path: Path, line: str
) -> None:
    journal = MemoryJournal(tmp_path / "journal")
    journal.begin([RECORD])
    journal.close()
    with journal.path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")

    assert MemoryJournal(journal.path).read() == [RECORD]


def test_a_full_disk_costs_the_journal_and_nothing_else(tmp_path: Path) -> None:
    journal = MemoryJournal(tmp_path / "folder" / "journal")
    journal.path.parent.mkdir()
    journal.begin([])
    journal.close()
    journal.path.unlink()
    journal.path.symlink_to("/dev/full")  # every write fails: there is no space left

    journal.keep(RECORD)

    assert journal.trouble is not None
    assert "No space left on device" in journal.trouble
    # What cannot be complete is gone, so that nobody takes it for complete.
    assert MemoryJournal(journal.path).read() is None
    journal.mend()
    assert journal.trouble is None
    assert MemoryJournal(journal.path).read() == [RECORD]
