"""A pod that is preempted gets its signal and its grace period, and goes on elsewhere."""

import subprocess
import sys
from pathlib import Path

from tests.kube.nodes.conftest import PODS, Bench, report, said

from interlane.testing.kube_api import KubeRefused
from interlane.testing.kube_site import KubeSite
from interlane.testing.waiting import until

TRAIN = Path(__file__).with_name("train.py")
STEPS = "300"


def test_an_evicted_training_saves_and_ends_with_the_losses_of_one_that_was_not(
    site: KubeSite, bench: Bench, shared: Path
) -> None:
    program, kept, go = shared / "train.py", shared / "kept.pt", shared / "go"
    program.write_text(TRAIN.read_text())
    words = ("--steps", STEPS, "--seed", "7")
    done = subprocess.run(
        (sys.executable, str(program), *words), check=True, capture_output=True, text=True
    )
    alone = said(done.stdout)["losses"]

    held = ("--checkpoint", str(kept), "--wait-for", str(go))
    command = (sys.executable, str(program), *words, *held)
    bench.place(site.host_pod("first", *command), "real-0", (0,), 500)
    bench.running("first")
    until(lambda: _has_trained(site), "some iterations")
    eviction = {
        "apiVersion": "policy/v1beta1",
        "kind": "Eviction",
        "metadata": {"name": "first", "namespace": "default"},
    }
    site.api.post(f"{PODS}/first/eviction", eviction)
    until(lambda: _is_gone(bench, "first"), "the end of the evicted pod")
    assert kept.exists()

    go.touch()
    bench.place(site.host_pod("second", *command), "real-2", (1,), 500)
    phase, output = bench.over("second")
    assert phase == "Succeeded", output
    found = said(output)
    assert found["begun_at"] > 0
    assert found["losses"] == alone
    assert found["device"] == "1"


def _has_trained(site: KubeSite) -> bool:
    told = report(site, "real-0").shared
    return told is not None and any(
        one.run.iterations > 20 for one in told.devices[0].processes
    )


def _is_gone(bench: Bench, name: str) -> bool:
    try:
        bench.pod(name)
    except KubeRefused as error:
        return error.status == 404
    return False
