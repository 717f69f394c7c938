"""Words to the engine of Slurm, and what is missing for it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from interlane.engines.slurm.commands import SlurmCommands, SlurmSaysNo
from interlane.engines.slurm.engine import SlurmEngine
from interlane.engines.slurm.session import SlurmSettings
from interlane.model import InvalidInput, UnknownName

_LINE: Final = re.compile(r"(\w+)\s*=\s*(.*)")
_SECONDS: Final = re.compile(r"(\d+)")


def slurm(
    state: Path, partition: str | None, keep_s: float, *, dry_run: bool, trusts_users: bool
) -> SlurmEngine:
    """Return an engine of the Slurm that programs of this machine speak to.

    Args:
        state: the server's folder.
        partition: the partitions whose jobs we schedule, with commas; all, if not given.
        keep_s: seconds for which it is remembered how attempts ended.
        dry_run: whether nothing is changed, and Slurm decides.
        trusts_users: whether those who have no account may submit.
    """
    commands = SlurmCommands()
    config = config_of(commands)
    partitions = frozenset(filter(None, (partition or "").split(",")))
    known = known_partitions(commands)
    for one in sorted(partitions - known):
        raise UnknownName("partition", one, known)
    if not partitions and not dry_run:
        raise InvalidInput(
            "Say with --partition whose jobs are scheduled here; --dry-run looks at all."
        )
    return SlurmEngine(
        state,
        SlurmSettings(
            partitions,
            dry_run,
            trusts_users,
            keep_s=keep_s,
            min_age_s=_seconds(config.get("MinJobAge", "300")),
            cluster=config.get("ClusterName", "Slurm"),
        ),
    )


def greeting(engine: SlurmEngine) -> str:
    """Return what is said of an engine when it serves."""
    settings = engine.settings
    named = ", ".join(sorted(settings.partitions))
    where = f"partition {named}" if named else "all partitions"
    if settings.dry_run:
        return (
            f"Looking on at {where} of {settings.cluster}: Slurm decides, nothing is changed."
        )
    return f"Scheduling the jobs that are held for us in {where} of {settings.cluster}."


def config_of(commands: SlurmCommands) -> Mapping[str, str]:
    """Return Slurm's configuration as its controller has it."""
    lines = commands.run("scontrol", "show", "config").splitlines()
    found = (_LINE.fullmatch(line.strip()) for line in lines)
    return {one[1]: one[2].strip() for one in found if one is not None}


def known_partitions(commands: SlurmCommands) -> frozenset[str]:
    """Return the names of all partitions."""
    try:
        said = commands.run("sinfo", "--all", "--noheader", "--format=%R")
    except SlurmSaysNo as error:
        raise InvalidInput(f"Slurm's partitions cannot be read ({error}).") from None
    return frozenset(filter(None, (line.strip() for line in said.splitlines())))


def _seconds(text: str) -> float:
    found = _SECONDS.match(text)
    return float(found[1]) if found else 300.0
