"""Whatever breaks, breaks for one job: others go on, and the ledger is exact."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interlane import cli
from interlane.device.link import NoDaemon
from interlane.model import Rejected
from interlane.testing.waiting import PATIENCE_S, until

from .conftest import MIB, ONE_MIB, Stage

HOLDS = """
import torch
class Endless(torch.nn.Linear):
    def forward(self, inputs):
        print("inside", flush=True)
        while True:
            pass
Endless(2, 1)(torch.ones(1, 2))
"""


def test_when_the_holder_is_killed_the_next_goes_on_and_the_ledger_is_exact(
    stage: Stage,
) -> None:
    stage.daemon("--order", "fifo", "--hung-after", "1000")
    # Between iterations it could lose its lane, which keeps its size while somebody runs there.
    holder = stage.start(stage.script(HOLDS), name="holder", memory_mib=(50, 70))
    until(lambda: "inside" in holder.text)
    waiter = stage.start("mlp.py", 100_000, name="waiter", memory_mib=(30, 40))
    until(lambda: "waiting" in stage.states.get("waiter", ""))
    assert stage.device.booked_bytes == (50 + 30 + 70) * MIB

    holder.process.send_signal(signal.SIGKILL)

    until(lambda: "holder" not in stage.states)
    assert stage.device.booked_bytes == (30 + 40) * MIB
    stage.goes_on(waiter)
    assert set(stage.states) == {"waiter"}


@pytest.mark.parametrize("order", ["fair", "fifo"])
def test_a_job_that_is_stuck_inside_an_iteration_is_ended_and_others_go_on(
    stage: Stage, order: str
) -> None:
    stage.daemon("--hung-after", "0.5", "--order", order)
    script = stage.script(
        """
import time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.ones(1, 2)).sum()
    if step == 15:
        print("stuck", flush=True)
        while True:  # one that only sleeps would lend its lane
            pass
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
    stage.goes_on(other)
    assert "is inside one iteration for too long" in stage.log
    assert "was sent SIGTERM" in stage.log


IDLES = """
import time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print("idle", flush=True)
time.sleep(1000)
"""


def test_a_job_that_does_nothing_for_long_gives_its_lease_back_when_asked(
    stage: Stage,
) -> None:
    stage.daemon("--order", "fifo", "--hung-after", "1000")
    idle = stage.start(stage.script(IDLES), memory_mib=(20, 20))
    until(lambda: "idle" in idle.text)

    stage.start("mlp.py", 200, memory_mib=(20, 20)).finished()

    assert idle.process.poll() is None


def test_a_holder_that_is_stopped_between_iterations_keeps_its_lane_for_so_long_only(
    stage: Stage,
) -> None:
    stage.daemon("--order", "fifo", "--hung-after", "0.5")
    idle = stage.start(stage.script(IDLES), memory_mib=(20, 20))
    until(lambda: "idle" in idle.text)
    idle.process.send_signal(signal.SIGSTOP)

    stage.start("mlp.py", 20, memory_mib=(20, 20)).finished()

    assert idle.process.wait(PATIENCE_S) == -signal.SIGKILL
    assert "keeps an idle lane, and others wait" in stage.log


def test_a_budget_smaller_than_the_job_refuses_it_for_good(stage: Stage) -> None:
    stage.daemon(device="cpu:10MiB")

    job = stage.start("mlp.py", 10, memory_mib=(11, 0))

    assert job.process.wait(PATIENCE_S) == cli.NEVER_PLACED
    assert "the device can give 10,485,760" in job.text


def test_there_is_no_device_of_that_number(stage: Stage) -> None:
    stage.daemon("--device", "cpu:1GiB")

    with stage.client("second", device=1, **ONE_MIB):
        assert stage.status().devices[1].processes[0].name == "second"
    with pytest.raises(Rejected, match="There is no device 2; there are 2"):
        stage.client(device=2)


def test_without_a_daemon_a_client_says_how_to_start_one(stage: Stage) -> None:
    with pytest.raises(NoDaemon, match="start one with 'interlane share daemon'"):
        stage.client()


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


def test_a_daemon_whose_log_is_on_a_full_disk_serves_all_the_same(stage: Stage) -> None:
    command = (sys.executable, "-m", "interlane", "share", "daemon", "--device", "cpu:1GiB")
    with Path("/dev/full").open("wb") as full:
        daemon = subprocess.Popen([*command, "--socket", str(stage.address)], stderr=full)
    stage.daemons.append(daemon)

    until(lambda: stage.answers() or daemon.poll() is not None)

    assert daemon.poll() is None
    with stage.client("mine", **ONE_MIB) as client, client.iteration():
        assert stage.states == {"mine": "running"}
