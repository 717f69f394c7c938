"""What is there and what is missing for us to schedule a Slurm's jobs."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interlane.engines.slurm.commands import SlurmCommands, SlurmSaysNo, SlurmSilent
from interlane.engines.slurm.machines import gpus_of
from interlane.engines.slurm.make import config_of, known_partitions
from interlane.engines.slurm.reading import Skipped, read_jobs, read_nodes
from interlane.engines.slurm.watch import HEARTBEAT

PROGRAMS: Final = ("squeue", "sinfo", "scontrol", "sbatch", "scancel", "setpriv")


@dataclass(frozen=True, slots=True)
class SlurmFinding:
    """One thing that matters, and what it is like here."""

    name: str
    holds: bool
    here: str
    follows: str
    """What follows from it, or what to do."""
    is_needed: bool = False
    """Whether nothing works without it."""


def examine(state: Path, partition: str | None) -> list[SlurmFinding]:
    """Look at everything that matters; what cannot be asked ends it."""
    commands = SlurmCommands()
    found = list(_programs())
    try:
        for one in _asked(commands, state, partition):
            found.append(one)
    except (SlurmSilent, SlurmSaysNo) as error:
        remedy = "start slurmctld, or set SLURM_CONF"
        found.append(SlurmFinding("controller", False, str(error), remedy, is_needed=True))
    return found


def _programs() -> Iterator[SlurmFinding]:
    gone = [name for name in PROGRAMS if shutil.which(name) is None]
    here = f"missing: {', '.join(gone)}" if gone else "all"
    yield SlurmFinding("programs", not gone, here, "install Slurm's client programs", True)


def _asked(
    commands: SlurmCommands, state: Path, partition: str | None
) -> Iterator[SlurmFinding]:
    config = config_of(commands)
    version = config.get("SLURM_VERSION", "unknown")
    yield SlurmFinding("controller", True, f"{config.get('ClusterName')}, Slurm {version}", "")
    yield _json(commands)
    yield from _nodes(commands)
    wanted = frozenset(filter(None, (partition or "").split(",")))
    unknown = sorted(wanted - known_partitions(commands))
    here = f"unknown: {', '.join(unknown)}" if unknown else ", ".join(sorted(wanted)) or "none"
    holds = bool(wanted) and not unknown
    yield SlurmFinding("partition", holds, here, "name those to schedule with --partition")
    users = config.get("SlurmUser", "").partition("(")[0]
    is_admin = os.geteuid() == 0 or users == os.environ.get("USER")
    follows = "only --dry-run works: others' jobs cannot be held or released"
    yield SlurmFinding("rights", is_admin, f"user {os.geteuid()}", follows)
    lua = "lua" in config.get("JobSubmitPlugins", "")
    follows = "jobs are ours only if submitted with --hold --comment=interlane"
    yield SlurmFinding("job_submit/lua", lua, config.get("JobSubmitPlugins", "none"), follows)
    task_prolog = config.get("TaskProlog", "(null)")
    follows = "jobs with a share of a GPU do not take turns on it"
    yield SlurmFinding("task prolog", task_prolog != "(null)", task_prolog, follows)
    beat = state / HEARTBEAT
    follows = "no server works here; the snippet holds no job"
    yield SlurmFinding("heartbeat", beat.exists(), str(beat), follows)


def _json(commands: SlurmCommands) -> SlurmFinding:
    skipped = Skipped()
    try:
        jobs = read_jobs(commands.json("squeue", "--all"), skipped)
    except (SlurmSilent, SlurmSaysNo) as error:
        remedy = "install Slurm's JSON serializer; Slurm 21.08 or newer has it"
        return SlurmFinding("squeue --json", False, str(error), remedy, is_needed=True)
    left_out = sum(skipped.count.values())
    why = "; ".join(skipped.count)[:200]
    here = f"{len(jobs)} jobs, {left_out} left out"
    return SlurmFinding("squeue --json", not left_out, here, why)


def _nodes(commands: SlurmCommands) -> Iterator[SlurmFinding]:
    skipped = Skipped()
    nodes = read_nodes(commands.json("sinfo", "--all"), skipped)
    gpus = [gpus_of(node.gres) for node in nodes]
    here = f"{len(nodes)} nodes, {sum(len(one.models) for one in gpus)} GPUs"
    left_out = sum(skipped.count.values())
    yield SlurmFinding("nodes", not left_out, here, "; ".join(skipped.count)[:200])
    pinned = all(one.pinned for one in gpus)
    follows = "Slurm chooses the GPU on a node; give each a type of its own in gres.conf"
    yield SlurmFinding("GPUs by number", pinned, "yes" if pinned else "types repeat", follows)
    shards = all(all(one.shards) for one in gpus)
    follows = "jobs cannot have a share of a GPU; add shards in gres.conf"
    yield SlurmFinding("shards", shards, "yes" if shards else "not on all", follows)
