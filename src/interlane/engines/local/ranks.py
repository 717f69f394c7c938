"""The processes of a job on this machine: all at one address, at ports that are free now."""

import socket
from dataclasses import replace
from itertools import count, islice
from random import randrange
from typing import Final

from interlane.device.inventory import Devices
from interlane.engines.local.shortage import MachineLacks
from interlane.live import ranks
from interlane.live.files.job import JobSpec
from interlane.live.ranks import Rank
from interlane.model import Placement

HOST: Final = "127.0.0.1"
PORTS: Final = range(20_000, 30_000)
"""Below those that systems give to outgoing connections, which could take one in between."""

_offered: Final = count(randrange(len(PORTS)))
"""Ports in turn, so that jobs that start together get different ones."""


def ranks_of(job: JobSpec, placement: Placement, hardware: Devices) -> tuple[Rank, ...]:
    """Return the processes of a job that goes to a place, by rank; ports are free now."""
    ports = free_ports(1 + placement.instances)
    return tuple(
        replace(one, own={**one.own, "CUDA_VISIBLE_DEVICES": hardware.visible(one.devices)})
        for one in ranks.ranks_of(job, placement, lambda machine: HOST, ports)
    )


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
