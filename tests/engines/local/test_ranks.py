"""The processes of a job find each other: real ones, with PyTorch."""

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from interlane.device.inventory import emulated
from interlane.engines.local.launch import JobBounds, Secrets, order_of
from interlane.engines.local.ranks import PORTS, free_ports, ranks_of
from interlane.engines.local.runner import ProcessRunner
from interlane.live.files.job import read_spec
from interlane.live.port import Ended, NeverBegan
from interlane.model import Machine, MachineId, Placement, Spot
from interlane.testing.live import launch_of

HERE = MachineId("here")
MACHINE = Machine(HERE, "EMULATED", 4, 8_000, 65_536, 16_384)
DEVICES = emulated(MACHINE)
ROLES: dict[str, Any] = {
    "name": "roles",
    "tasks": [
        {"role": "ps", "resources": {"cpu": 1}, "run": "python serve.py"},
        {
            "role": "big-worker",
            "count": 2,
            "resources": {"gpu": {"count": 2}},
            "run": "python train.py",
            "env": {"DEPTH": "9"},
        },
    ],
}
PLACEMENT = Placement(
    (Spot(HERE, (0, 1), task=1), Spot(HERE, (2, 3), task=1), Spot(HERE, (), task=0))
)


def test_ranks_go_by_task_and_each_process_sees_its_own_devices() -> None:
    ranks = ranks_of(read_spec(ROLES), PLACEMENT, DEVICES)

    assert [
        (
            one.torch["RANK"],
            one.own["INTERLANE_ROLE"],
            one.own["INTERLANE_ROLE_RANK"],
            one.own["INTERLANE_DEVICES"],
        )
        for one in ranks
    ] == [
        ("0", "ps", "0", ""),
        ("1", "big-worker", "0", "0,1"),
        ("2", "big-worker", "1", "2,3"),
    ]
    assert {one.torch["WORLD_SIZE"] for one in ranks} == {"3"}
    assert {one.torch["LOCAL_RANK"] for one in ranks} == {"0"}


def test_all_processes_are_told_the_same_addresses_and_none_twice() -> None:
    ranks = ranks_of(read_spec(ROLES), PLACEMENT, DEVICES)

    told = {
        (
            one.torch["MASTER_PORT"],
            one.own["INTERLANE_ADDRESSES_PS"],
            one.own["INTERLANE_ADDRESSES_BIG_WORKER"],
        )
        for one in ranks
    }
    ((master, ps, workers),) = told
    ports = [address.partition(":")[2] for address in (*ps.split(","), *workers.split(","))]
    assert len({master, *ports}) == 1 + 3


def test_a_port_that_somebody_listens_at_is_not_given_away() -> None:
    with socket.socket() as taken:
        (next_port,) = free_ports(1)
        port = PORTS[(next_port + 1 - PORTS[0]) % len(PORTS)]
        taken.bind(("127.0.0.1", port))
        taken.listen()

        assert port not in free_ports(5)


def test_a_job_that_sets_where_to_meet_keeps_it(tmp_path: Path) -> None:
    job = read_spec({"name": "a", "run": "true", "env": {"MASTER_PORT": "7", "RANK": "x"}})
    launch = launch_of(job, Placement((Spot(HERE),)), MACHINE)

    (process,) = order_of(launch, Secrets(tmp_path), DEVICES, None, JobBounds()).processes

    assert (process.env["MASTER_PORT"], process.env["RANK"]) == ("7", "x")
    assert process.env["WORLD_SIZE"] == "1"


def test_roles_have_their_own_command_variables_and_memory(tmp_path: Path) -> None:
    tasks = [
        {**ROLES["tasks"][0], "resources": {"memory": "1GiB..2GiB"}},
        ROLES["tasks"][1],
    ]
    job = read_spec({**ROLES, "tasks": tasks, "env": {"DEPTH": "1"}})

    launch = launch_of(job, PLACEMENT, MACHINE)
    order = order_of(launch, Secrets(tmp_path), DEVICES, None, JobBounds())

    assert [
        (process.argv[2], process.env["DEPTH"], process.memory_bytes_max)
        for process in order.processes
    ] == [
        ("python serve.py", "1", 2 << 30),
        ("python train.py", "9", None),
        ("python train.py", "9", None),
    ]


ADD_UP = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="env://")
mine = torch.tensor([10 ** dist.get_rank()])
dist.all_reduce(mine)
print(os.environ["INTERLANE_ROLE"], dist.get_rank(), dist.get_world_size(), mine.item())
dist.destroy_process_group()
"""


def test_processes_of_two_roles_meet_in_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "add.py").write_text(ADD_UP)
    run = f"{sys.executable} {tmp_path / 'add.py'}"
    job = read_spec(
        {
            "name": "meet",
            "tasks": [
                {"role": "chief", "resources": {"cpu": 1}, "run": run},
                {"role": "worker", "count": 2, "resources": {"cpu": 1}, "run": run},
            ],
            "env": {"OMP_NUM_THREADS": "1"},
        }
    )
    place = Placement((Spot(HERE, task=0), Spot(HERE, instances=2, task=1)))
    launch = launch_of(job, place, MACHINE)
    over, ends = threading.Event(), list[Ended | NeverBegan]()

    def tell(report: Ended | NeverBegan) -> None:
        ends.append(report)
        over.set()

    runner = ProcessRunner(tmp_path / "runs", tell)
    try:
        runner.start(order_of(launch, Secrets(tmp_path), DEVICES, None, JobBounds()))
        assert over.wait(120)
        printed = runner.output(launch.attempt, 0, 10_000).data
    finally:
        runner.stop(launch.attempt)
        runner.close()

    said = sorted(line for line in printed.decode().splitlines() if "111" in line)
    assert said == ["chief 0 3 111", "worker 1 3 111", "worker 2 3 111"], printed.decode()
    assert [getattr(end, "exit_code", None) for end in ends] == [0]


@pytest.mark.parametrize(
    ("resources", "count", "mib"),
    [
        ({"memory": "1GiB"}, 1, 1024),
        ({"memory": "1GiB..3GiB"}, 2, 2 * 3072),
        ({"cpu": 1}, 1, None),
        ({"memory": "1GiB", "gpu": {"memory": "2GiB..4GiB"}}, 1, 1024 + 4096),
        ({"memory": "1GiB", "gpu": {}}, 1, 1024 + MACHINE.device(0).memory_mib),
    ],
    ids=["asked", "limit of each", "nothing said", "on a device", "on a whole device"],
)
def test_a_job_may_have_the_memory_of_all_its_processes_and_emulated_devices(
    tmp_path: Path, resources: dict[str, Any], count: int, mib: int | None
) -> None:
    said = {"name": "a", "run": "true", "resources": resources, "gang": {"nodes": count}}
    spot = Spot(HERE, (0,) if "gpu" in resources else (), count)
    launch = launch_of(read_spec(said), Placement((spot,)), MACHINE)

    limits = order_of(launch, Secrets(tmp_path), DEVICES, None, JobBounds()).limits

    assert limits.memory_bytes == (None if mib is None else mib << 20)
    assert limits.processes == JobBounds().processes
