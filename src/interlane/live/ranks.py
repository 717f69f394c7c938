"""What the processes of a job are told of each other.

Every instance of every task is one process, and all of them are one world: ranks go by task, as
the file lists them, then by instance.  A process sees its own GPUs only, and is therefore a
node of its own for PyTorch: its local rank, by which programs choose a GPU, is 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from interlane.live.files.job import JobSpec
from interlane.model import MachineId, Placement


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a job."""

    task: int
    """Number of its task among the job's."""
    machine: MachineId
    devices: tuple[int, ...]
    """Numbers of its devices."""
    torch: Mapping[str, str]
    """Variables by which ``torch.distributed`` finds the others (``env://``)."""
    own: Mapping[str, str]
    """Variables of ours."""


def ranks_of(
    job: JobSpec,
    placement: Placement,
    host: Callable[[MachineId], str],
    ports: Sequence[int],
) -> tuple[Rank, ...]:
    """Return the processes of a job that goes to a place, by rank.

    Args:
        job: the job.
        placement: where it goes.
        host: the address of a machine.
        ports: one to find each other at, and one for each instance to listen at.
    """
    instances = sorted(_instances(placement), key=lambda one: one[0])
    hosts = [host(machine) for _, machine, _ in instances]
    master, *others = ports
    addresses: dict[str, list[str]] = {task.role: [] for task in job.roles}
    ranks = []
    for rank, ((task, machine, devices), port) in enumerate(
        zip(instances, others, strict=True)
    ):
        role = job.roles[task].role
        torch = _torch(rank, len(instances), hosts[0], master)
        own = _own(role, len(addresses[role]), rank, devices)
        addresses[role].append(f"{hosts[rank]}:{port}")
        ranks.append(Rank(task, machine, devices, torch, own))
    shared = {
        "INTERLANE_NUM_NODES": str(len(ranks)),
        "INTERLANE_NODE_IPS": "\n".join(hosts),
        **{_variable(role): ",".join(each) for role, each in addresses.items()},
    }
    return tuple(
        Rank(one.task, one.machine, one.devices, one.torch, {**shared, **one.own})
        for one in ranks
    )


def _instances(placement: Placement) -> Iterator[tuple[int, MachineId, tuple[int, ...]]]:
    """Yield the task, the machine and the devices of every instance."""
    for spot in placement.spots:
        for _ in range(spot.instances):
            yield spot.task, spot.machine, spot.gpus


def _torch(rank: int, world: int, host: str, port: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "RANK": str(rank),
        "GROUP_RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def _own(role: str, role_rank: int, rank: int, devices: tuple[int, ...]) -> dict[str, str]:
    return {
        "INTERLANE_ROLE": role,
        "INTERLANE_ROLE_RANK": str(role_rank),
        "INTERLANE_NODE_RANK": str(rank),
        "INTERLANE_NUM_GPUS_PER_NODE": str(len(devices)),
        "INTERLANE_DEVICES": ",".join(map(str, devices)),
    }


def _variable(role: str) -> str:
    """Return the variable that lists where the processes of a role may listen."""
    return f"INTERLANE_ADDRESSES_{role.upper().replace('-', '_')}"
