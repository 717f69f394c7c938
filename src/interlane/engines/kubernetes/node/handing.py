"""What a container gets together with its devices: files, variables, and a place in line.

A pod that is one process on one GPU finds the node's device daemon at a socket that is mounted
into it, and our hooks in front of its Python's path: its training takes turns with others,
whatever image it has.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from zlib import crc32

from interlane import __version__
from interlane.device.inject import PACKAGE
from interlane.device.lane_request import LaneRequest
from interlane.device.launch import environment_of
from interlane.engines.kubernetes.node.claims import DeviceClaim
from interlane.engines.kubernetes.node.messages import PLUGIN
from interlane.engines.kubernetes.node.offers import NodeDevice

INSIDE: Final = PurePosixPath("/run/interlane")
"""Where containers find all that is mounted into them."""
PARTS: Final = ("device", "lanes", "model")
"""What a program needs of us in order to take turns."""
PATIENCE_S: Final = 120.0
"""For which a program that starts waits for the daemon."""
NVIDIA: Final = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """What an agent keeps on its node, and pods see of it."""

    path: Path

    @property
    def lanes(self) -> Path:
        """Where the device daemon's socket lies."""
        return self.path / "lanes"

    @property
    def code(self) -> Path:
        """Where the hooks lie, of this version."""
        return self.path / "code" / __version__

    def put_code(self) -> None:
        """Copy what programs in pods need of us; an interrupted copy is made anew."""
        fresh = self.code.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        for part in PARTS:
            shutil.copytree(
                PACKAGE / part,
                fresh / PACKAGE.name / part,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        # Nothing of ours is compiled there, and where programs keep their own is theirs to say.
        (fresh / PACKAGE.name / "__init__.py").write_text(f"__version__ = {__version__!r}\n")
        shutil.rmtree(self.code, ignore_errors=True)
        fresh.rename(self.code)


def run_number(uid: str) -> int:
    """Return the number by which the device daemon knows a pod; never 0."""
    return crc32(uid.encode()) or 1


@dataclass(frozen=True, slots=True)
class Handing:
    """Makes what containers get on this node."""

    folder: NodeFolder
    devices: Sequence[NodeDevice]
    socket: Path
    """Of the device daemon, on the node."""

    def given(self, claim: DeviceClaim) -> Any:  # noqa: ANN401 - a message
        """Return what the container of a pod gets."""
        owned = [self.devices[number] for number in claim.gpus]
        envs = {
            "INTERLANE_NUM_GPUS_PER_NODE": str(len(owned)),
            "INTERLANE_DEVICES": ",".join(map(str, claim.gpus)),
            "INTERLANE_GPU_MILLI": str(claim.share_milli),
            "CUDA_VISIBLE_DEVICES": ",".join(one.uuid for one in owned if one.uuid),
            NVIDIA: ",".join(one.uuid for one in owned if one.uuid) or "void",
        }
        if not claim.takes_turns:
            return PLUGIN["ContainerAllocateResponse"](envs=envs)
        request = _request(claim, owned[0])
        code, lanes = INSIDE / "code", INSIDE / "lanes"
        socket = Path(lanes / self.socket.name)
        turns = environment_of(request, socket, {}, package=Path(code / PACKAGE.name))
        return PLUGIN["ContainerAllocateResponse"](
            envs={**turns, **envs},
            mounts=[
                _mount(code, self.folder.code),
                _mount(lanes, self.socket.parent),
            ],
        )


def _request(claim: DeviceClaim, device: NodeDevice) -> LaneRequest:
    """Return what a program asks of the device daemon; all that it may have counts as held."""
    memory_bytes = (claim.memory_mib << 20) - device.shared.context_bytes
    return LaneRequest(
        claim.job,
        device.place,
        persistent_bytes=max(1 << 20, memory_bytes) if claim.memory_mib else None,
        ephemeral_bytes=0 if claim.memory_mib else None,
        is_declared=claim.memory_mib > 0,
        run=run_number(claim.uid),
        share=claim.share_milli,
        patience_s=PATIENCE_S,
    )


def _mount(inside: PurePosixPath, outside: Path) -> Any:  # noqa: ANN401 - a message
    return PLUGIN["Mount"](container_path=str(inside), host_path=str(outside), read_only=True)
