"""Jobs of a real Slurm that share a GPU take turns on it, if the site installs the prologs."""

import subprocess
import sys
from pathlib import Path

import pytest

from interlane.device.launch import status
from interlane.device.link import NoDaemon
from interlane.engines.slurm.manifests import SlurmSite, manifests, task_prolog
from interlane.engines.slurm.sharing import joined
from interlane.lanes.report import ProcessReport
from interlane.model import InvalidField, InvalidInput
from interlane.testing.slurm_cluster import SlurmShape, lacking, slurm
from interlane.testing.waiting import until

TRAINS = """#!/bin/sh
exec {python} -c '
import pathlib, torch
model = torch.nn.Linear(64, 64)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
while not pathlib.Path("{end}").exists():
    model(torch.randn(16, 64)).sum().backward()
    optimiser.step()
    optimiser.zero_grad()
'
"""
SLURM = {"SLURM_JOB_ID": "12", "SLURM_JOB_GPUS": "1", "SLURM_SHARDS_ON_NODE": "300"}


def test_two_trainings_that_share_a_gpu_join_the_daemon_of_their_node(tmp_path: Path) -> None:
    why = lacking()
    if why is not None:
        pytest.skip(why)
    socket, end, prolog = tmp_path / "share.sock", tmp_path / "end", tmp_path / "taskprolog"
    prolog.write_text(task_prolog(f"{sys.executable} -m interlane", str(socket)))
    prolog.chmod(0o755)
    daemon = (sys.executable, "-m", "interlane", "share", "daemon", "--socket", str(socket))
    extra = f"{SlurmShape().extra}\nTaskProlog={prolog}"
    with (
        slurm(SlurmShape(nodes=1, extra=extra)) as cluster,
        subprocess.Popen((*daemon, "--device=cpu:2GiB", "--device=cpu:2GiB")) as serves,
    ):
        try:
            until(socket.exists, "a daemon")
            script = TRAINS.format(python=sys.executable, end=end)
            words = ("--gres=shard:emu.1:400", "--mem=100M")
            jobs = [cluster.submit(*words, script=script) for _ in range(2)]
            until(lambda: len(_on(socket, 1)) == 2, "two jobs on the second device")
            names = {one.name: one.share_milli for one in _on(socket, 1)}
            end.touch()
            for job in jobs:
                until(lambda job=job: cluster.state(job) == "COMPLETED", "an end")  # type: ignore[misc]
        finally:
            serves.terminate()

    assert names == {f"slurm-{job}": 400 for job in jobs}


def _on(socket: Path, device: int) -> tuple[ProcessReport, ...]:
    try:
        return tuple(status(socket).devices[device].processes)
    except NoDaemon:
        return ()


def test_a_job_with_a_whole_gpu_joins_nothing() -> None:
    assert joined(Path("/x/share.sock"), {"SLURM_JOB_GPUS": "1"}) == []


def test_a_job_is_told_its_device_and_its_share() -> None:
    lines = joined(Path("/x/share.sock"), SLURM)

    (request,) = [one for one in lines if '"name"' in one]
    assert '"slurm-12"' in request
    assert '"device": 1' in request
    assert '"share": 300' in request
    assert all(line.startswith("export ") and "\n" not in line for line in lines)


def test_what_slurm_never_sets_is_refused() -> None:
    with pytest.raises(InvalidInput, match="SLURM_JOB_GPUS is 'all'"):
        joined(Path("/x/share.sock"), SLURM | {"SLURM_JOB_GPUS": "all"})


@pytest.mark.parametrize("name", ["gpu;reboot", "a b", 'x"]=1', ""])
def test_names_that_would_be_commands_are_not_put_into_scripts(name: str) -> None:
    with pytest.raises(InvalidField, match="letters, digits"):
        manifests(SlurmSite((name,), Path("/var/lib/interlane")))
