"""Words to what a site of Slurm's installs and asks, apart from the server."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlane.engines.slurm.doctor import SlurmFinding


def slurm_manifests(
    partition: str, state: Path, release_s: int, gpus: str, command: str
) -> dict[str, str]:
    """Return what a site installs, by file; ``gpus`` reads like ``a100:8:80GiB``."""
    from interlane.engines.slurm.manifests import SlurmSite, manifests
    from interlane.model import InvalidField

    model, *rest = gpus.split(":")
    if len(rest) != 2 or not rest[0].isdecimal() or not 0 < int(rest[0]) <= 62:
        raise InvalidField(
            "gpus", gpus, "it must read like 'a100:8:80GiB': type, number, memory"
        )
    partitions = tuple(filter(None, partition.split(",")))
    site = SlurmSite(
        partitions, state.absolute(), release_s, model, int(rest[0]), rest[1], command
    )
    return manifests(site)


def slurm_findings(state: Path, partition: str | None) -> "list[SlurmFinding]":
    """Return what is there and what is missing."""
    from interlane.engines.slurm.doctor import examine

    return examine(state, partition)


def joined_lines(socket: Path) -> list[str]:
    """Return the lines by which a task of a job joins the lanes daemon of its node."""
    from interlane.engines.slurm.sharing import joined

    return joined(socket, os.environ)


def admit_job(socket: Path) -> None:
    """Let the user of a job speak to the lanes daemon of its node."""
    from interlane.engines.slurm.sharing import admit

    admit(socket, os.environ)
