"""The two lines for a program that says itself where its iterations are.

    from interlane.device import attach

    for batch in attach().each(loader):
        train_step(batch)

Whatever the program uses to compute: nothing here imports a framework.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from interlane.device.backends import Backend, backend_of
from interlane.device.client import DeviceClient
from interlane.device.lane_request import LaneRequest, request_for, request_in
from interlane.device.rendezvous import socket_path

_mine: dict[int, DeviceClient] = {}
"""The client of this process, by process id: a forked child has none."""


def attach(
    *,
    name: str | None = None,
    device: int | None = None,
    priority: int = 0,
    total_s: float | None = None,
    memory: str | None = None,
    socket: Path | None = None,
) -> DeviceClient:
    """Take a place on a shared device, and wait for it if need be.

    A process has one place: where ``interlane share run`` has taken it, that one is returned.
    A job of a server, or a program under ``share run``, has a place that was chosen for it, and
    then the arguments say nothing.

    Args:
        name: what the job is called in ``interlane share status``.
        device: number of the device; any, unless given.
        priority: higher is more urgent, where the daemon's order asks for it.
        total_s: estimated device time of the whole job, for the order ``srtf``.
        memory: what the job needs at most, as ``PERSISTENT+EPHEMERAL`` or ``TOTAL``; it is held
            to that.  Unless given, the job is measured.
        socket: the daemon's socket.
    """
    known = present()
    if known is not None:
        return known
    request = request_in(os.environ) or request_for(
        name or Path(sys.argv[0]).name or "python",
        memory=memory,
        device=device,
        priority=priority,
        total_s=total_s,
    )
    return place(request, socket)


def present() -> DeviceClient | None:
    """Return the place that this process has; None if it has none."""
    known = _mine.get(os.getpid())
    return None if known is None or known.closed else known


def place(
    request: LaneRequest,
    socket: Path | None = None,
    backend: Callable[[str], Backend] = backend_of,
) -> DeviceClient:
    """Take this process's one place on a device."""
    _mine.clear()
    client = _mine[os.getpid()] = DeviceClient(request, socket_path(socket), backend)
    os.register_at_fork(after_in_child=client.forget)
    return client
