"""Whatever breaks, breaks for one job: others go on, and the ledger is exact."""

import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from interlane.device import wire
from interlane.device.backends.unmeasured import Unmeasured
from interlane.device.client import Client
from interlane.device.daemon import Daemon
from interlane.device.journal import Journal, Record
from interlane.device.link import NoDaemon, connected
from interlane.device.settings import Settings
from interlane.device.specs import DeviceSpec
from interlane.device.wire import Frame, Kind
from interlane.device.wish import Wish
from interlane.model import Rejected
from interlane.testing.waiting import PATIENCE_S, until

from .conftest import MIB, Job, Stage


def client(stage: Stage, name: str = "test", **wish: Any) -> Client:  # noqa: ANN401 - as Wish has them
    return Client(Wish(name, **wish), stage.address, Unmeasured)


def goes_on(stage: Stage, job: Job) -> None:
    """Wait until a job has run some iterations more."""
    before = stage.iterations(job)
    until(lambda: stage.iterations(job) > before + 3)


ONE_MIB: dict[str, Any] = {"persistent_bytes": MIB, "ephemeral_bytes": MIB}


def test_when_the_holder_is_killed_the_next_goes_on_and_the_ledger_is_exact(
    stage: Stage,
) -> None:
    stage.daemon("--order", "fifo")
    holder = stage.start("mlp.py", 100_000, name="holder", memory_mib=(50, 70))
    until(lambda: stage.iterations(holder) > 5)
    waiter = stage.start("mlp.py", 100_000, name="waiter", memory_mib=(30, 40))
    until(lambda: "waiting" in stage.states.get("waiter", ""))
    assert stage.device["booked_bytes"] == (50 + 30 + 70) * MIB

    holder.process.send_signal(signal.SIGKILL)

    until(lambda: "holder" not in stage.states)
    assert stage.device["booked_bytes"] == (30 + 40) * MIB
    goes_on(stage, waiter)
    assert set(stage.states) == {"waiter"}


def test_a_daemon_that_is_killed_and_started_again_costs_no_job(stage: Stage) -> None:
    stage.daemon("--order", "rr")
    jobs = [stage.start("mlp.py", 100_000, name=name, memory_mib=(50, 50)) for name in "abc"]
    until(lambda: all(stage.iterations(job) > 5 for job in jobs))
    booked = stage.device["booked_bytes"]

    for _ in range(2):
        stage.daemons[-1].kill()
        stage.daemons[-1].wait()
        stage.daemon("--order", "rr")
        assert stage.device["booked_bytes"] == booked
        until(lambda: not stage.device["recovering"])
        assert stage.device["booked_bytes"] == booked
        for job in jobs:
            goes_on(stage, job)

    assert [job.process.poll() for job in jobs] == [None] * 3
    until(lambda: all(job.text.count("\n0x") > 100 for job in jobs))
    losses = [[line for line in job.text.splitlines() if line.startswith("0x")] for job in jobs]
    assert losses[0][:100] == losses[1][:100] == losses[2][:100]


def test_nobody_is_admitted_while_jobs_of_the_daemon_before_are_away(stage: Stage) -> None:
    stage.daemon()
    job = stage.start("mlp.py", 100_000, memory_mib=(500, 400))
    until(lambda: stage.iterations(job) > 5)
    job.process.send_signal(signal.SIGSTOP)
    stage.daemons[-1].kill()
    stage.daemons[-1].wait()

    stage.daemon()
    late = stage.start("mlp.py", 10, name="late", memory_mib=(300, 10))
    until(lambda: stage.states.get("late") == "queued")

    assert stage.device["booked_bytes"] == 900 * MIB
    assert stage.states["mlp.py"] == "away"
    job.process.send_signal(signal.SIGCONT)
    until(lambda: not stage.device["recovering"])
    # The stopped job is back, with its 900 MiB; the late one does not fit beside it.
    assert stage.states["late"] == "queued"
    job.process.send_signal(signal.SIGKILL)
    late.finished()


def test_a_job_that_is_stuck_inside_an_iteration_is_ended_and_others_go_on(
    stage: Stage,
) -> None:
    stage.daemon("--hung-after", "0.5")
    script = stage.script(
        """
import time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.ones(1, 2)).sum()
    if step == 15:
        print("stuck", flush=True)
        time.sleep(1000)
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
"""
    )
    # A second job must have been there for the first to be asked to give way.
    stuck = stage.start(script, memory_mib=(20, 20))
    other = stage.start("mlp.py", 100_000, memory_mib=(20, 20))
    until(lambda: "stuck" in stuck.text)

    assert stuck.process.wait(PATIENCE_S) == -signal.SIGTERM
    goes_on(stage, other)
    assert "is inside one iteration for too long" in stage.log
    assert "was sent SIGTERM" in stage.log


def test_a_job_that_does_nothing_for_long_gives_its_lease_back_when_asked(
    stage: Stage,
) -> None:
    stage.daemon("--order", "fifo", "--hung-after", "1000")
    script = stage.script(
        """
import time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print("idle", flush=True)
time.sleep(1000)
"""
    )
    idle = stage.start(script, memory_mib=(20, 20))
    until(lambda: "idle" in idle.text)

    stage.start("mlp.py", 200, memory_mib=(20, 20)).finished()

    assert idle.process.poll() is None


def test_a_job_that_says_goodbye_and_dies_at_once_is_let_go_once(tmp_path: Path) -> None:
    daemon = Daemon(Settings((DeviceSpec("cpu", 10 * MIB),), tmp_path / "s"))
    code = """
import sys
sys.path[:0] = {path!r}
from interlane.device.link import connected
from interlane.device import wire
from interlane.device.wish import Wish
from pathlib import Path
line = connected(Path({address!r}))
line.send(wire.packed(Wish("brief", persistent_bytes=1, ephemeral_bytes=1).hello(5)))
line.recv(wire.FRAME_BYTES)
line.send(wire.packed(wire.Frame(wire.Kind.BYE, 5)))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code.format(path=sys.path, address=str(tmp_path / "s"))]
    )
    while process.poll() is None and not daemon.devices[0].jobs:
        daemon.turn(wait_s=0.1)

    process.wait()  # now its goodbye and its death are both there to be noticed
    daemon.turn()
    daemon.turn()

    assert daemon.devices[0].jobs == {}
    assert daemon.devices[0].domain.book.booked_bytes == 0
    daemon.close()


def test_a_goodbye_is_heard_though_the_job_hung_up_before_it_was_read(tmp_path: Path) -> None:
    daemon = Daemon(Settings((DeviceSpec("cpu", 10 * MIB),), tmp_path / "s"))
    leaves, stays = connected(tmp_path / "s"), connected(tmp_path / "s")
    for key, line in enumerate((leaves, stays), start=1):
        line.send(wire.packed(Wish("job", persistent_bytes=1, ephemeral_bytes=1).hello(key)))
        daemon.turn()
        daemon.turn()
    leaves.send(wire.packed(Frame(Kind.ACQUIRE, 1)))
    daemon.turn()
    (_, peer) = daemon._peers._peers.values()
    leaves.send(wire.packed(Frame(Kind.BYE, 1)))
    leaves.close()

    daemon._take(peer, Frame(Kind.ACQUIRE, 2))  # which the holder, who is gone, is told of
    daemon._peers.drop_broken()

    assert [job.key for job in daemon.devices[0].jobs.values()] == [2]
    assert [lease.job_id for lease in daemon.devices[0].domain.leases] == [
        one.id for one in daemon.devices[0].jobs.values()
    ]
    daemon.close()
    stays.close()


def test_a_goodbye_is_heard_though_the_job_never_read_what_it_was_sent(tmp_path: Path) -> None:
    daemon = Daemon(Settings((DeviceSpec("cpu", 10 * MIB),), tmp_path / "s"))
    with connected(tmp_path / "s") as line:
        line.send(wire.packed(Wish("job", persistent_bytes=1, ephemeral_bytes=1).hello(1)))
        daemon.turn()
        daemon.turn()
        assert len(daemon.devices[0].jobs) == 1
        line.send(wire.packed(Frame(Kind.BYE, 1)))

    daemon.turn()
    daemon.turn()

    assert daemon.devices[0].jobs == {}
    daemon.close()


# -- what comes in by the socket ---------------------------------------------------------------


def test_garbage_ends_the_connection_that_sent_it_and_nothing_else(stage: Stage) -> None:
    stage.daemon()
    dice = random.Random(7)
    job = stage.start("mlp.py", 100_000, memory_mib=(20, 20))
    until(lambda: stage.iterations(job) > 5)
    header = wire.packed(Frame(Kind.HELLO))[:3]

    for _ in range(1500):
        with connected(stage.address) as line:
            kind = dice.randrange(4)
            if kind == 0:
                message = dice.randbytes(dice.randrange(1, 2 * wire.FRAME_BYTES))
            elif kind == 1:
                message = header + dice.randbytes(wire.FRAME_BYTES - len(header))
            else:
                message = wire.packed(
                    Frame(
                        dice.choice(list(Kind)),
                        job=dice.getrandbits(dice.choice((1, 64))),
                        device=dice.choice((0, 1, wire.ANY_DEVICE)),
                        lane=dice.getrandbits(32),
                        flags=wire.Flag(dice.randrange(sum(wire.Flag) + 1)),
                        epoch=dice.getrandbits(64),
                        first=dice.getrandbits(dice.choice((8, 64))),
                        second=dice.getrandbits(dice.choice((8, 64))),
                        third=dice.getrandbits(64),
                        text="x",
                    )
                )
            with suppress(ConnectionError):
                for _ in range(dice.randrange(1, 4)):
                    line.send(message)

    goes_on(stage, job)
    assert stage.daemons[-1].poll() is None, stage.log


def test_thousands_of_connections_keep_no_job_out(stage: Stage) -> None:
    stage.daemon()
    idle = []
    try:
        for _ in range(3000):
            idle.append(connected(stage.address))
        stage.start("mlp.py", 20, memory_mib=(20, 20)).finished()
    finally:
        for line in idle:
            line.close()
    assert stage.daemons[-1].poll() is None, stage.log


def test_a_connection_that_floods_is_cut_off(stage: Stage) -> None:
    stage.daemon()
    with connected(stage.address) as line:
        line.settimeout(PATIENCE_S)
        line.send(wire.packed(Wish("flood", **ONE_MIB).hello(77)))
        sent = 0
        with suppress(ConnectionError):
            for sent in range(1_000_000):  # noqa: B007
                line.send(wire.packed(Frame(Kind.ACQUIRE, 77)))
    assert sent < 999_999
    assert stage.answers()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_client_of_another_user_is_refused(stage: Stage) -> None:
    stage.daemon()
    stage.folder.chmod(0o755)
    stage.address.chmod(0o666)  # as if somebody had opened the door by mistake
    code = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect(sys.argv[1])
sys.stdout.write(line.recv(512)[56:].decode("latin-1"))
"""

    answer = subprocess.run(
        [sys.executable, "-c", code, str(stage.address)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "The daemon serves user 0, you are user 65534." in answer.stdout
    assert stage.device["jobs"] == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_the_socket_is_closed_to_other_users(stage: Stage) -> None:
    stage.daemon()
    stage.folder.chmod(0o755)
    code = """
import os, socket, sys
os.setuid(65534)
socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])
"""

    ended = subprocess.run(
        [sys.executable, "-c", code, str(stage.address)], capture_output=True, check=False
    )

    assert b"PermissionError" in ended.stderr


def test_a_lease_of_the_past_changes_nothing(stage: Stage) -> None:
    stage.daemon()
    with client(stage, "one", **ONE_MIB) as one:
        one.begin()
        with connected(stage.address) as line:
            line.settimeout(PATIENCE_S)
            line.send(wire.packed(Wish("two", **ONE_MIB).hello(99)))
            admitted = wire.read(line.recv(wire.FRAME_BYTES))
            assert admitted is not None
            assert admitted.kind is Kind.ADMIT
            # It never had a lease, and gives back all that it can think of.
            for epoch in (0, 1, 2**63, wire.U64):
                line.send(wire.packed(Frame(Kind.RELEASE, 99, epoch=epoch)))
                line.send(wire.packed(Frame(Kind.YIELD, 99, epoch=epoch)))
            line.send(wire.packed(Frame(Kind.ACQUIRE, 99)))
            until(lambda: stage.states.get("two") == "waiting")
            assert stage.states["one"] == "running"
            one.end()
            granted = wire.read(line.recv(wire.FRAME_BYTES))
            assert granted is not None
            assert granted.kind is Kind.GRANT


def test_no_frames_at_all_make_the_books_unsafe(tmp_path: Path) -> None:
    """The daemon itself, without a process around it, hears 20,000 frames of 12 jobs."""
    dice = random.Random(11)
    daemon = Daemon(Settings((DeviceSpec("cpu", 100),), tmp_path / "s"))
    lines: dict[int, socket.socket] = {}
    for turn in range(20_000):
        key = dice.randrange(1, 13)
        if key not in lines or dice.random() < 0.01:
            if key in lines:
                lines[key].close()
            lines[key] = connected(tmp_path / "s")
            lines[key].setblocking(False)
        kind = Kind.HELLO if dice.random() < 0.2 else dice.choice(list(Kind))
        tenants = daemon.devices[0].domain.leases
        epochs = [lease.epoch for lease in tenants] + [0, dice.getrandbits(64)]
        amounts = [dice.choice((0, dice.randrange(150), wire.U64)) for _ in range(3)]
        frame = Frame(
            kind,
            key,
            priority=dice.randrange(-9, 9),
            lane=dice.randrange(3),
            flags=wire.Flag(dice.randrange(sum(wire.Flag) + 1)),
            epoch=dice.choice(epochs),
            first=amounts[0],
            second=amounts[1],
            third=amounts[2],
        )
        try:
            lines[key].send(wire.packed(frame))
            with suppress(BlockingIOError):
                lines[key].recv(wire.FRAME_BYTES)
        except ConnectionError:
            lines.pop(key).close()
        daemon.turn(wait_s=0.0)
        if turn % 20 == 0:
            daemon.devices[0].domain.check()
    assert daemon.devices[0].domain.leases or daemon.devices[0].jobs
    daemon.close()
    for line in lines.values():
        line.close()


# -- refusals --------------------------------------------------------------------------------


def test_a_budget_smaller_than_the_job_refuses_it_for_good(stage: Stage) -> None:
    stage.daemon(device="cpu:10MiB")

    with pytest.raises(Rejected, match="the device can give 10,485,760"):
        client(stage, persistent_bytes=11 * MIB, ephemeral_bytes=0)


def test_there_is_no_device_of_that_number(stage: Stage) -> None:
    stage.daemon("--device", "cpu:1GiB")

    with client(stage, "second", device=1, **ONE_MIB):
        assert stage.status()["devices"][1]["jobs"][0]["name"] == "second"
    with pytest.raises(Rejected, match="There is no device 2; there are 2"):
        client(stage, device=2)


def test_without_a_daemon_a_client_says_how_to_start_one(stage: Stage) -> None:
    with pytest.raises(NoDaemon, match="start one with 'interlane share daemon'"):
        client(stage)


def test_two_daemons_at_one_socket_are_one_too_many(stage: Stage) -> None:
    stage.daemon()
    second = subprocess.run(
        [sys.executable, "-m", "interlane", "share", "daemon", "--socket", str(stage.address)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert second.returncode == 2
    assert "a device daemon runs at" in second.stderr
    assert stage.answers()


# -- the journal -----------------------------------------------------------------------------

RECORD = Record(7, "a.1", "a", os.getpid(), 1, 0, 3, 40, 50, 60, -2, is_declared=True)


def test_a_journal_tells_who_is_still_there(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.begin([])
    journal.keep(RECORD)
    journal.keep(Record(8, "b.2", "b", 2, 1, 0, 3, 40, 50, 60, 0, is_declared=False))
    journal.drop(8)
    journal.close()

    assert Journal(tmp_path / "journal").read() == [RECORD]


@pytest.mark.parametrize(
    "line",
    ["", "{", "null", "[]", '{"left": "x"}', '{"key": 1}', "\0\0", '{"left": 1' * 100_000],
)
def test_lines_of_a_journal_that_make_no_sense_are_passed_over(
    tmp_path: Path, line: str
) -> None:
    journal = Journal(tmp_path / "journal")
    journal.begin([RECORD])
    journal.close()
    with journal.path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")

    assert Journal(journal.path).read() == [RECORD]


def test_a_full_disk_costs_the_journal_and_nothing_else(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "folder" / "journal")
    journal.path.parent.mkdir()
    journal.begin([])
    journal.close()
    journal.path.unlink()
    journal.path.symlink_to("/dev/full")  # every write fails: there is no space left

    journal.keep(RECORD)

    assert journal.trouble is not None
    assert "No space left on device" in journal.trouble
    # What cannot be complete is gone, so that nobody takes it for complete.
    assert Journal(journal.path).read() is None
    journal.mend()
    assert journal.trouble is None
    assert Journal(journal.path).read() == [RECORD]
