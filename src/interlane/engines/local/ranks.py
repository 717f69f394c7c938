"""What the processes of a job are told of each other.

Every instance of every task is one process, and all of them are one world: ranks go by task, as
the file lists them, then by instance.  A process sees its own GPUs only, and is therefore a
node of its own for PyTorch: its local rank, by which programs choose a GPU, is 0.
"""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from random import randrange
from typing import Final

from interlane.engines.local.devices import Devices
from interlane.engines.local.shortage import MachineLacks
from interlane.live.files.job import JobSpec
from interlane.model import Placement

HOST: Final = "127.0.0.1"
PORTS: Final = range(20_000, 30_000)
"""Below those that systems give to outgoing connections, which could take one in between."""

_offered: Final = count(randrange(len(PORTS)))
"""Ports in turn, so that jobs that start together get different ones."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a job."""

    task: int
    """Number of its task among the job's."""
    devices: tuple[int, ...]
    """Numbers of its devices."""
    torch: Mapping[str, str]
    """Variables by which ``torch.distributed`` finds the others (``env://``)."""
    own: Mapping[str, str]
    """Variables of ours."""


def ranks_of(job: JobSpec, placement: Placement, hardware: Devices) -> tuple[Rank, ...]:
    """Return the processes of a job that goes to a place, by rank; ports are free now."""
    instances = sorted(_instances(placement), key=lambda one: one[0])
    master, *ports = free_ports(1 + len(instances))
    addresses: dict[str, list[str]] = {task.role: [] for task in job.roles}
    ranks = []
    for rank, ((task, devices), port) in enumerate(zip(instances, ports, strict=True)):
        role = job.roles[task].role
        torch = _torch(rank, len(instances), master)
        own = _own(role, len(addresses[role]), rank, devices, hardware)
        addresses[role].append(f"{HOST}:{port}")
        ranks.append(Rank(task, devices, torch, own))
    shared = {
        "INTERLANE_NUM_NODES": str(len(ranks)),
        "INTERLANE_NODE_IPS": "\n".join([HOST] * len(ranks)),
        **{_variable(role): ",".join(each) for role, each in addresses.items()},
    }
    return tuple(Rank(one.task, one.devices, one.torch, {**shared, **one.own}) for one in ranks)


def free_ports(wanted: int) -> list[int]:
    """Return ports that nobody listens at and that were not returned lately."""
    tried = (PORTS[turn % len(PORTS)] for turn in islice(_offered, len(PORTS)))
    found = list(islice(filter(_is_free, tried), wanted))
    if len(found) < wanted:
        raise MachineLacks(f"free ports from {PORTS[0]} to {PORTS[-1]} ({wanted} are needed)")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _instances(placement: Placement) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the task and the devices of every instance."""
    for spot in placement.spots:
        for _ in range(spot.instances):
            yield spot.task, spot.gpus


def _torch(rank: int, world: int, port: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "RANK": str(rank),
        "GROUP_RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def _own(
    role: str, role_rank: int, rank: int, devices: tuple[int, ...], hardware: Devices
) -> dict[str, str]:
    return {
        "INTERLANE_ROLE": role,
        "INTERLANE_ROLE_RANK": str(role_rank),
        "INTERLANE_NODE_RANK": str(rank),
        "INTERLANE_NUM_GPUS_PER_NODE": str(len(devices)),
        "INTERLANE_DEVICES": ",".join(map(str, devices)),
        "CUDA_VISIBLE_DEVICES": hardware.visible(devices),
    }


def _variable(role: str) -> str:
    """Return the variable that lists where the processes of a role may listen."""
    return f"INTERLANE_ADDRESSES_{role.upper().replace('-', '_')}"
