"""What comes in by the socket, from whomever, hurts nobody but its sender."""

import os
import random
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from interlane.device import wire
from interlane.device.daemon import Daemon
from interlane.device.lane_request import LaneRequest
from interlane.device.launch import status
from interlane.device.link import StrangersDaemon, connected
from interlane.device.peers import STRANGERS
from interlane.device.settings import DeviceSettings
from interlane.device.specs import DeviceSpec
from interlane.device.wire import Frame, FrameKind
from interlane.testing.waiting import PATIENCE_S, until

from .conftest import MIB, ONE_MIB, Stage, arrival


def test_a_job_that_says_goodbye_and_dies_at_once_is_let_go_once(tmp_path: Path) -> None:
    daemon = Daemon(DeviceSettings((DeviceSpec("cpu", 10 * MIB),), tmp_path / "s"))
    code = """
import sys
sys.path[:0] = {path!r}
from interlane.device.link import connected
from interlane.device import wire
from interlane.device.lane_request import LaneRequest
from pathlib import Path
line = connected(Path({address!r}))
line.send(wire.packed(LaneRequest("brief", persistent_bytes=1, ephemeral_bytes=1).hello(5)))
line.recv(wire.FRAME_BYTES)
line.send(wire.packed(wire.Frame(wire.FrameKind.BYE, 5)))
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
    daemon = Daemon(DeviceSettings((DeviceSpec("cpu", 10 * MIB),), tmp_path / "s"))
    leaves, stays = arrival(daemon, 1), arrival(daemon, 2)
    leaves.send(wire.packed(Frame(FrameKind.ACQUIRE, 1)))
    daemon.turn()
    (_, peer) = daemon._peers._peers.values()
    leaves.send(wire.packed(Frame(FrameKind.BYE, 1)))
    leaves.close()

    daemon._take(peer, Frame(FrameKind.ACQUIRE, 2))  # which the holder, who is gone, is told of
    daemon._peers.drop_broken()

    assert [job.key for job in daemon.devices[0].jobs.values()] == [2]
    assert [lease.job_id for lease in daemon.devices[0].domain.leases] == [
        one.id for one in daemon.devices[0].jobs.values()
    ]
    daemon.close()
    stays.close()


def test_a_goodbye_is_heard_though_the_job_never_read_what_it_was_sent(tmp_path: Path) -> None:
    daemon = Daemon(DeviceSettings((DeviceSpec("cpu", 10 * MIB),), tmp_path / "s"))
    with arrival(daemon, 1) as line:
        line.send(wire.packed(Frame(FrameKind.BYE, 1)))

    daemon.turn()
    daemon.turn()

    assert daemon.devices[0].jobs == {}
    daemon.close()


def test_garbage_ends_the_connection_that_sent_it_and_nothing_else(stage: Stage) -> None:
    stage.daemon()
    rng = random.Random(7)
    job = stage.start("mlp.py", 100_000, memory_mib=(20, 20))
    until(lambda: stage.iterations(job) > 5)
    header = wire.packed(Frame(FrameKind.HELLO))[:3]

    for _ in range(1500):
        with connected(stage.address) as line:
            kind = rng.randrange(4)
            if kind == 0:
                message = rng.randbytes(rng.randrange(1, 2 * wire.FRAME_BYTES))
            elif kind == 1:
                message = header + rng.randbytes(wire.FRAME_BYTES - len(header))
            else:
                message = wire.packed(
                    Frame(
                        rng.choice(list(FrameKind)),
                        job=rng.getrandbits(rng.choice((1, 64))),
                        device=rng.choice((0, 1, wire.ANY_DEVICE)),
                        lane=rng.getrandbits(32),
                        flags=wire.Flag(rng.randrange(sum(wire.Flag) + 1)),
                        epoch=rng.getrandbits(64),
                        first=rng.getrandbits(rng.choice((8, 64))),
                        second=rng.getrandbits(rng.choice((8, 64))),
                        third=rng.getrandbits(64),
                        text="x",
                    )
                )
            with suppress(ConnectionError):
                for _ in range(rng.randrange(1, 4)):
                    line.send(message)

    stage.goes_on(job)
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


def test_jobs_and_strangers_up_to_the_last_descriptor_leave_the_daemon_alive(
    stage: Stage,
) -> None:
    stage.daemon(descriptors=STRANGERS + 64 + 5 * 90)
    with ExitStack() as lines:
        for _ in range(STRANGERS):
            lines.enter_context(connected(stage.address))
        told = []
        for key in range(1, 100):
            line = lines.enter_context(connected(stage.address))
            line.settimeout(PATIENCE_S)
            line.send(wire.packed(LaneRequest("job", **ONE_MIB).hello(key)))
            told.append(wire.read(line.recv(wire.FRAME_BYTES)))

        assert [one and one.kind for one in told] == [FrameKind.ADMIT] * 90 + [
            FrameKind.REJECT
        ] * 9
        assert told[-1] is not None
        assert told[-1].text == "The daemon has 90 jobs, and room for no more."
        # Whoever asks is answered all the same.
        assert len(stage.device.processes) == 90


def test_a_connection_that_floods_is_cut_off(stage: Stage) -> None:
    stage.daemon()
    with connected(stage.address) as line:
        line.settimeout(PATIENCE_S)
        line.send(wire.packed(LaneRequest("flood", **ONE_MIB).hello(77)))
        sent = 0
        with suppress(ConnectionError):
            for sent in range(1_000_000):  # noqa: B007
                line.send(wire.packed(Frame(FrameKind.ACQUIRE, 77)))
    assert sent < 999_999
    assert stage.answers()


def printed_by(code: str, address: Path) -> str:
    command = [sys.executable, "-c", code, str(address)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


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

    assert "The daemon serves user 0, you are user 65534." in printed_by(code, stage.address)
    assert stage.device.processes == ()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_the_socket_is_closed_to_other_users(stage: Stage) -> None:
    stage.daemon()
    stage.folder.chmod(0o755)
    code = """
import os, sys
from pathlib import Path
from interlane.device.link import connected
os.setuid(65534)
connected(Path(sys.argv[1]))
"""

    assert "serves another user; start your own with" in printed_by(code, stage.address)


def test_a_lease_of_the_past_changes_nothing(stage: Stage) -> None:
    stage.daemon()
    with stage.client("one", **ONE_MIB) as one:
        one.begin()
        with connected(stage.address) as line:
            line.settimeout(PATIENCE_S)
            line.send(wire.packed(LaneRequest("two", **ONE_MIB).hello(99)))
            admitted = wire.read(line.recv(wire.FRAME_BYTES))
            assert admitted is not None
            assert admitted.kind is FrameKind.ADMIT
            # It never had a lease, and gives back all that it can think of.
            for epoch in (0, 1, 2**63, wire.U64):
                line.send(wire.packed(Frame(FrameKind.RELEASE, 99, epoch=epoch)))
                line.send(wire.packed(Frame(FrameKind.YIELD, 99, epoch=epoch)))
            line.send(wire.packed(Frame(FrameKind.ACQUIRE, 99)))
            until(lambda: stage.states.get("two") == "waiting")
            assert stage.states["one"] == "running"
            one.end()
            granted = wire.read(line.recv(wire.FRAME_BYTES))
            assert granted is not None
            assert granted.kind is FrameKind.GRANT


def test_no_frames_at_all_make_the_state_unsafe(tmp_path: Path) -> None:
    """The daemon itself, without a process around it, hears 20,000 frames of 12 jobs."""
    rng = random.Random(11)
    daemon = Daemon(DeviceSettings((DeviceSpec("cpu", 100),), tmp_path / "s"))
    lines: dict[int, socket.socket] = {}
    for turn in range(20_000):
        key = rng.randrange(1, 13)
        if key not in lines or rng.random() < 0.01:
            if key in lines:
                lines[key].close()
            lines[key] = connected(tmp_path / "s")
            lines[key].setblocking(False)
        kind = FrameKind.HELLO if rng.random() < 0.2 else rng.choice(list(FrameKind))
        tenants = daemon.devices[0].domain.leases
        epochs = [lease.epoch for lease in tenants] + [0, rng.getrandbits(64)]
        amounts = [rng.choice((0, rng.randrange(150), wire.U64)) for _ in range(3)]
        frame = Frame(
            kind,
            key,
            priority=rng.randrange(-9, 9),
            lane=rng.randrange(3),
            flags=wire.Flag(rng.randrange(sum(wire.Flag) + 1)),
            epoch=rng.choice(epochs),
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


SQUATTER = """
import os, socket, sys
os.setuid(12345)
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.bind(sys.argv[1])
line.listen(8)
print("listens", flush=True)
while True:
    peer, _ = line.accept()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("mode", [0o700, 0o1777], ids=["in their folder", "in everybody's"])
def test_a_stranger_who_listens_where_a_daemon_should_is_not_believed(mode: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as top:
        Path(top).chmod(0o755)
        folder = Path(top) / "s"
        folder.mkdir()
        folder.chmod(mode)
        if mode == 0o700:
            os.chown(folder, 12345, 12345)
        path = folder / "lanes.sock"
        command = ("/usr/bin/env", "python3", "-I", "-S", "-c", SQUATTER, str(path))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as squatter:
            assert squatter.stdout is not None
            try:
                assert squatter.stdout.readline() == "listens\n"
                with pytest.raises(StrangersDaemon, match="user 12345"):
                    status(path)
            finally:
                squatter.kill()


def test_a_folder_that_everybody_may_change_holds_no_daemon(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    with pytest.raises(StrangersDaemon, match="whoever may write"):
        connected(tmp_path / "lanes.sock")


def test_the_kernel_says_which_process_a_daemon_is_and_not_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(DeviceSettings((DeviceSpec("cpu", 10 * MIB),), tmp_path / "s"))
    true_pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with ThreadPoolExecutor(1) as asks:
        asked = asks.submit(status, tmp_path / "s")
        while not asked.done():
            daemon.turn(wait_s=0.1)
    daemon.close()

    assert asked.result().pid == true_pid
