"""Real trainings that share devices under the server, and what they survive."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from interlane import cli
from interlane.device.backends.unmeasured import Unmeasured
from interlane.device.client import DeviceClient
from interlane.device.lane_request import LaneRequest
from interlane.device.lanes import LaneSettings
from interlane.device.launch import status
from interlane.device.link import NoDaemon
from interlane.live.auth import Role
from interlane.live.driver import Driver
from interlane.live.http import prometheus as metrics
from interlane.live.measure.monitor import Use
from interlane.live.measure.occupancy import ABSENT
from interlane.live.store.record import JobRecord
from interlane.model.lifecycle import JobState
from interlane.testing.live import (
    driving,
    ended,
    make_driver,
    make_lanes,
    serving,
    spec,
    view_of,
)
from interlane.testing.waiting import PATIENCE_S, is_alive, until

pytest.importorskip("torch")

TRAIN = """
import sys, pathlib, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
most, pause_s, batches, done = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), 0
while done < most and not pathlib.Path("stop").exists():
    for _ in range(batches):
        model(torch.ones(64, 256)).square().mean().backward()
    optimizer.step()
    if pause_s:
        time.sleep(pause_s)
    done += 1
print("trained", done)
"""

HOARD = """
import torch
kept = [torch.zeros(1)]
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], lr=0.1)
while True:
    kept.append(torch.ones(4 << 20))
    optimizer.step()
"""

OLD_DAEMON = """
import json, os, socket, sys
from interlane.device import wire
from interlane.device.wire import Frame, FrameKind

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    while True:
        line, _ = listener.accept()
        line.recv(1024)
        answer = json.dumps({"pid": os.getpid(), "order": "fair", "devices": []}).encode()
        file = os.memfd_create("status")
        os.write(file, answer)
        socket.send_fds(line, [wire.packed(Frame(FrameKind.STATUS, first=len(answer)))], [file])
"""

# Iterations so long, and so little between them, that a busy machine, too, nearly always stops
# the job within one: it never seems to have nothing to run.
BUSY = f"train.py {10**9} 0 20"
CALM = f"train.py {10**9} 0.02 1"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Scripts in a folder; not pytest's, whose path may be too long for a socket."""
    # The daemon outlives the server for a while, and may still write there.
    with TemporaryDirectory(prefix="lanes-", ignore_cleanup_errors=True) as name:
        for script, text in {"train.py": TRAIN, "hoard.py": HOARD}.items():
            (Path(name) / script).write_text(text)
        yield Path(name)


@contextmanager
def sharing(folder: Path, gpus: int = 1) -> Iterator[Driver]:
    """Drive a machine with lanes; its daemon ends by itself when nobody needs it."""
    with driving(folder, gpus=gpus, lanes=make_lanes(folder, gpus=gpus)) as driver:
        yield driver


def submit(
    driver: Driver,
    folder: Path,
    command: str,
    *,
    memory: str = "4GiB",
    max_slowdown: float | None = None,
) -> JobRecord:
    job = spec("job", f"{sys.executable} {command}").model_dump(exclude_defaults=True)
    job["resources"]["gpu"] |= {"memory": memory}
    if max_slowdown is not None:
        job["share"] = {"max_slowdown": max_slowdown}
    job |= {"workdir": str(folder), "env": {"OMP_NUM_THREADS": "1"}}
    return driver.submit(type(spec()).model_validate(job), "ann").result(PATIENCE_S)


def iterations(driver: Driver, record: JobRecord) -> int:
    use = view_of(driver).use(record.id)
    return 0 if use is None else use.iterations


def trains(driver: Driver, *records: JobRecord, beyond: int = 20) -> None:
    """Wait until jobs have done some more iterations."""
    goals = {record.id: iterations(driver, record) + beyond for record in records}
    for record in records:
        until(
            lambda one=record: iterations(driver, one) > goals[one.id],  # type: ignore[misc]
            f"iterations of {record.id}",
        )


def printed(driver: Driver, record: JobRecord) -> str:
    return view_of(driver).output(record.id, 1, 0, 1 << 20).data.decode()


def daemon_pid(folder: Path) -> int | None:
    try:
        return status(make_lanes(folder).settings.socket).pid
    except NoDaemon:
        return None


@dataclass(frozen=True)
class Granted:
    """What the daemon has counted of two jobs that always want their turn."""

    device_s: tuple[float, float]
    iterations: tuple[int, int]
    turns: int

    def since(self, before: "Granted") -> "Granted":
        return Granted(
            (self.device_s[0] - before.device_s[0], self.device_s[1] - before.device_s[1]),
            (
                self.iterations[0] - before.iterations[0],
                self.iterations[1] - before.iterations[1],
            ),
            self.turns - before.turns,
        )

    def goes_by(self, shares: float) -> bool:
        """Tell whether so many turns are enough to judge, and the first got that much more.

        Turns are whole, so that the parts are never exact.  How many iterations fit into them
        depends on what else the machine does.
        """
        if self.turns < 20 or min(self.device_s) < 1 or min(self.iterations) < 1:
            return False
        times = self.device_s[0] / self.device_s[1]
        more = self.iterations[0] / self.iterations[1]
        return 0.75 * shares < times < 1.33 * shares and more > 0.6 * shares


def granted(folder: Path, first: JobRecord, second: JobRecord) -> Granted:
    (device,) = status(make_lanes(folder).settings.socket).devices
    jobs = {one.name: one for one in device.processes}
    one, other = jobs[first.id], jobs[second.id]
    return Granted(
        (one.attained_s, other.attained_s),
        (one.run.iterations, other.run.iterations),
        device.switches,
    )


def slowdowns(driver: Driver, *records: JobRecord) -> list[Use] | None:
    """Return how records get on, once all that can be known of it is."""
    uses = [view_of(driver).use(one.id) or Use() for one in records]
    known = all(one.measured_slowdown and one.predicted_slowdown for one in uses)
    return uses if known else None


def test_two_trainings_take_turns_by_their_shares(folder: Path) -> None:
    with sharing(folder) as driver:
        bound = submit(driver, folder, BUSY, max_slowdown=1.5)
        other = submit(driver, folder, BUSY)
        trains(driver, bound, other, beyond=2)
        before = granted(folder, bound, other)
        until(
            lambda: granted(folder, bound, other).since(before).goes_by(shares=667 / 250),
            "turns by share",
        )
        until(lambda: slowdowns(driver, bound, other), "slowdowns")
        (device,) = view_of(driver).devices()
        figures = metrics.page(view_of(driver), (), ()).decode()
        (folder / "stop").touch()
        done = [ended(driver, one) for one in (bound, other)]
        said = [printed(driver, one) for one in (bound, other)]

    assert device.is_shared
    assert device.held_milli == 667 + 250
    assert [set(lane.jobs) for lane in device.lanes] == [{bound.id, other.id}]
    assert 8 << 30 <= device.booked_bytes < 9 << 30
    assert 0 < device.used_bytes < device.booked_bytes
    assert device.busy is not None
    assert 0 < device.busy <= 1
    near, far = (one.use for one in device.jobs)
    assert near is not None
    assert far is not None
    assert 1 <= (near.predicted_slowdown or 9) <= 917 / 667 + 0.01
    assert (near.predicted_slowdown or 9) < (far.predicted_slowdown or 0) <= 917 / 250 + 0.01
    for kind in ("predicted", "measured"):
        assert f'device="here:0",job="{bound.id}",kind="{kind}"' in figures
    for record, words in zip(done, said, strict=True):
        assert record.state is JobState.SUCCEEDED
        assert record.use is not None
        assert words == f"trained {record.use['iterations']}\n"
        assert 0 < record.use["waited_s"] < record.use["present_s"]
        assert record.use["measured_slowdown"] > 1
    near_by, far_by = (record.use["measured_slowdown"] for record in done if record.use)
    assert near_by < far_by


def test_jobs_outlive_the_daemon_and_find_the_next_one(folder: Path) -> None:
    with sharing(folder) as driver:
        record = submit(driver, folder, CALM)
        trains(driver, record)
        before = daemon_pid(folder)
        assert before is not None

        os.kill(before, signal.SIGKILL)
        late = submit(driver, folder, "train.py 30 0 1")

        assert ended(driver, late).exit_code == 0
        assert daemon_pid(folder) != before
        trains(driver, record)
        (folder / "stop").touch()
        assert ended(driver, record).exit_code == 0


def test_a_daemon_that_falls_silent_is_replaced(folder: Path) -> None:
    with sharing(folder) as driver:
        until(lambda: view_of(driver).devices()[0].is_shared, "the daemon")
        before = daemon_pid(folder)
        assert before is not None

        os.kill(before, signal.SIGSTOP)

        until(lambda: not is_alive(before), "the end of the silent one")
        until(lambda: daemon_pid(folder) not in (None, before), "another daemon")


def test_the_next_server_adopts_the_daemon_and_its_jobs(folder: Path) -> None:
    first = make_driver(folder, gpus=1, lanes=make_lanes(folder))
    first.start()
    record = submit(first, folder, CALM)
    trains(first, record)
    before, done = daemon_pid(folder), iterations(first, record)
    first.close()

    with sharing(folder) as second:
        trains(second, record)

        assert daemon_pid(folder) == before
        assert iterations(second, record) > done
        (folder / "stop").touch()
        assert ended(second, record).exit_code == 0


def test_jobs_that_run_out_of_memory_or_are_killed_fail_alone(folder: Path) -> None:
    with sharing(folder) as driver:
        good, doomed = submit(driver, folder, CALM), submit(driver, folder, CALM)
        greedy = submit(driver, folder, "hoard.py", memory="256MiB")
        trains(driver, good, doomed)
        found = status(make_lanes(folder).settings.socket).devices[0].processes

        os.kill(next(one.pid for one in found if one.name == doomed.id), signal.SIGKILL)

        assert ended(driver, doomed).exit_code == 137
        assert ended(driver, greedy).exit_code == 1
        assert "can't allocate memory" in printed(driver, greedy)
        until(
            lambda: [lane.jobs for lane in view_of(driver).devices()[0].lanes] == [(good.id,)]
        )
        trains(driver, good)
        (folder / "stop").touch()
        assert ended(driver, good).exit_code == 0


def test_what_never_imports_torch_just_runs(folder: Path) -> None:
    with sharing(folder) as driver:
        record = submit(driver, folder, "-c \"import os; print(os.environ['HOME'])\"")

        done = ended(driver, record)

    assert (done.exit_code, done.use) == (0, None)


def test_jobs_of_several_processes_or_gpus_are_not_gated(folder: Path) -> None:
    with sharing(folder, gpus=2) as driver:
        run = "echo action=${INTERLANE_SHARE_REQUEST:-none}; sleep 0.2"
        wide = driver.submit(spec("wide", run, gpus=2), "ann").result(PATIENCE_S)
        until(lambda: "action=none" in printed(driver, wide))

        assert {one.state for device in view_of(driver).devices() for one in device.jobs} <= {
            ABSENT
        }


def test_a_daemon_with_other_devices_is_replaced(folder: Path) -> None:
    with sharing(folder, gpus=1):
        until(lambda: daemon_pid(folder) is not None)

    with sharing(folder, gpus=2) as driver:
        until(
            lambda: all(device.is_shared for device in view_of(driver).devices()),
            "other devices",
        )


def test_a_job_that_the_daemon_keeps_waiting_is_shown_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with sharing(folder) as driver, serving(driver) as (address, tokens):
        until(lambda: view_of(driver).devices()[0].is_shared, "the daemon")
        socket = make_lanes(folder).settings.socket
        stranger = LaneRequest("stranger", persistent_bytes=15 << 30, ephemeral_bytes=0)
        with DeviceClient(stranger, socket, Unmeasured):
            record = submit(driver, folder, "train.py 30 0 1")
            until(lambda: device_state(driver, record) == "queued", "the daemon's queue")
            (tenant,) = view_of(driver).devices()[0].jobs
            monkeypatch.setenv("INTERLANE_TOKEN", tokens[Role.VIEWER])
            said = []
            for words in (
                ("ps",),
                ("explain", record.id),
                ("describe", record.id, "-o", "json"),
            ):
                assert cli.run([*words, "--server", address]) == 0
                said.append(capsys.readouterr().out)
        done = ended(driver, record)

    assert tenant.state == "queued"
    assert tenant.why is not None
    assert "bytes, of which" in tenant.why
    assert f"waits on its device: {tenant.why}" in said[0]
    assert f"{record.id} is running, waits on its device: {tenant.why}" in said[1]
    document = json.loads(said[2])
    assert (document["device_state"], document["device_why"]) == ("queued", tenant.why)
    assert done.exit_code == 0


def device_state(driver: Driver, record: JobRecord) -> str | None:
    process = view_of(driver).on_device(record.id)
    return None if process is None else process.state


def test_a_daemon_whose_report_cannot_be_read_is_replaced(folder: Path) -> None:
    settings = make_lanes(folder).settings
    settings.folder.mkdir()
    old = subprocess.Popen([sys.executable, "-c", OLD_DAEMON, str(settings.socket)])
    until(settings.socket.exists, "the old daemon")

    with sharing(folder) as driver:
        until(lambda: view_of(driver).devices()[0].is_shared, "a daemon of this version")

    assert old.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_socket_lies_elsewhere_if_its_folder_has_too_long_a_name() -> None:
    near = LaneSettings((), Path("/state"))
    far = LaneSettings((), Path("/state" * 40))

    assert near.socket == Path("/state/lanes.sock")
    assert len(str(far.socket)) < 104
    assert far.socket != LaneSettings((), Path("/state" * 41)).socket


def test_servers_of_one_database_have_one_daemon_whichever_serves(tmp_path: Path) -> None:
    def socket(folder: str, url: str) -> Path:
        return LaneSettings((), tmp_path / folder, known_by=url).socket

    first = socket("a", "postgresql://me:secret@host/one")
    assert first == socket("b", "postgresql://me:secret@host/one")
    assert first != socket("a", "postgresql://me:secret@host/two")
    assert "secret" not in str(first)
    assert socket("a", "") != socket("b", "")
