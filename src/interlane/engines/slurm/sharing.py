"""On a node: how a job of Slurm's that has a share of a GPU joins the lanes daemon there.

Slurm runs ``admit`` as root before a job, and ``join`` as its user before each of its tasks; it
adds what ``join`` prints to the environment of the task.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from interlane.device.lane_request import LaneRequest
from interlane.device.launch import environment_of
from interlane.device.rendezvous import USERS, admit_users
from interlane.model import MILLI, InvalidInput

SHARDS: Final = "SLURM_SHARDS_ON_NODE"
GPUS: Final = "SLURM_JOB_GPUS"
NUMBER: Final = "SLURM_JOB_ID"
PATIENCE_S: Final = 30.0


def joined(socket: Path, environ: Mapping[str, str], shards: int = MILLI) -> list[str]:
    """Return the lines that let a task of a job share its GPU; none if it has it alone.

    Args:
        socket: the daemon's.
        environ: the environment that Slurm gave.
        shards: into how many parts a GPU is cut.
    """
    if not environ.get(SHARDS):
        return []
    device, share = _number(environ, GPUS), _number(environ, SHARDS)
    request = LaneRequest(
        f"slurm-{_number(environ, NUMBER)}",
        device,
        run=_number(environ, NUMBER),
        share=max(1, min(MILLI, share * MILLI // shards)),
        patience_s=PATIENCE_S,
    )
    made = environment_of(request, socket, environ)
    new = {name: value for name, value in made.items() if environ.get(name) != value}
    return [f"export {name}={value}" for name, value in sorted(new.items())]


def admit(socket: Path, environ: Mapping[str, str]) -> None:
    """Let the user of a job speak to the daemon."""
    uid = _number(environ, "SLURM_JOB_UID")
    file = socket.with_suffix(USERS)
    known = set(map(int, file.read_text().split())) if file.exists() else set()
    if uid not in known and uid != os.geteuid():
        admit_users(socket, known | {uid})


def _number(environ: Mapping[str, str], name: str) -> int:
    said = environ.get(name, "").partition(",")[0]
    if not said.isascii() or not said.isdigit():
        raise InvalidInput(f"{name} is {said!r}, but Slurm sets it to a number before a job.")
    return int(said[:18])
