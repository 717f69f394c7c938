"""Unmodified programs in pods take turns on one device, and compute the same as alone."""

import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from tests.kube.nodes.conftest import Bench, report, said

from interlane.testing.kube_site import KubeSite
from interlane.testing.waiting import until

NODE = "real-1"
TRAIN = Path(__file__).with_name("train.py")
STEPS = "120"


@pytest.fixture(scope="module")
def alone() -> dict[int, list[str]]:
    """Losses of trainings that nobody shares a device with, by seed."""
    found = {}
    for seed in (1, 2):
        words = (sys.executable, str(TRAIN), "--steps", STEPS, "--seed", str(seed))
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        found[seed] = said(done.stdout)["losses"]
    return found


def test_two_trainings_on_one_device_take_turns_with_the_losses_that_they_have_alone(
    site: KubeSite, bench: Bench, shared: Path, alone: dict[int, list[str]]
) -> None:
    go = shared / "go"
    (site.shared / "train.py").write_text(TRAIN.read_text())
    for seed in (1, 2):
        words = ("--steps", STEPS, "--seed", str(seed), "--wait-for", str(go))
        command = (sys.executable, str(site.shared / "train.py"), *words)
        # Root and somebody else: whoever has the socket mounted is served.
        user = {"securityContext": {"runAsUser": 1000 * (seed - 1)}}
        bench.place(site.host_pod(f"train-{seed}", *command, **user), NODE, (0,), 500)

    def trained(programs: int, iterations: int) -> bool:
        told = report(site, NODE).shared
        if told is None:
            return False
        done = [one.run.iterations for one in told.devices[0].processes]
        return sum(each > iterations for each in done) >= programs

    for seed in (1, 2):
        bench.running(f"train-{seed}")
    # One whose needs nobody knows has all of the memory at first; then there is room for two.
    for programs, iterations in ((1, 0), (1, 50), (2, 0), (2, 50)):
        until(
            partial(trained, programs, iterations), f"iterations of {programs} of two programs"
        )
    told = report(site, NODE)
    assert told.shared is not None
    device = told.shared.devices[0]
    assert {one.name for one in device.processes} == {"job-train-1", "job-train-2"}
    assert device.switches > 0
    assert all(one.run.turns_slowdown > 1.0 for one in device.processes)
    measured = told.measured(5.0)
    assert measured is not None
    assert [(one.machine, one.index) for one in measured.gpus] == [(NODE, 0), (NODE, 1)]
    _metrics_tell_the_same(site)
    go.touch()

    for seed in (1, 2):
        phase, output = bench.over(f"train-{seed}")
        assert phase == "Succeeded", output
        found = said(output)
        assert found["device"] == "0"
        assert found["losses"] == alone[seed]
    assert alone[1] != alone[2]


def _metrics_tell_the_same(site: KubeSite) -> None:
    path = f"/api/v1/namespaces/{site.wanted.namespace}/pods"
    (agent,) = (one for one in site.api.items(path) if one["spec"].get("nodeName") == NODE)
    at = f"http://{agent['status']['podIP']}:9441"
    with urllib.request.urlopen(f"{at}/metrics") as answer:
        page = answer.read().decode()
    assert 'interlane_share_slowdown{device="cpu",index="0",job="job-train-1"}' in page
    with urllib.request.urlopen(f"{at}/healthz") as answer:
        assert answer.read() == b"well"


def test_a_program_that_does_not_take_part_is_seen_in_no_report(
    site: KubeSite, bench: Bench
) -> None:
    """The other side of the test above: the report is made by those who take turns."""
    bench.place(site.host_pod("idle", "/bin/sleep", "600"), NODE, (1,), 500)
    bench.running("idle")
    before = report(site, NODE).at_s
    until(lambda: report(site, NODE).at_s > before, "the next report")

    told = report(site, NODE).shared
    assert told is not None
    assert [one.name for device in told.devices for one in device.processes] == []
