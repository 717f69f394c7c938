"""What holds jobs on this machine to their bounds, tried rather than believed."""

import os
from collections.abc import Iterator
from pathlib import Path

from interlane.device.probe import ProbeFinding
from interlane.engines.local.groups import groups_here


def enforced_here() -> Iterator[ProbeFinding]:
    """Say what a server that this user starts here would enforce on its jobs."""
    groups = groups_here(Path("doctor"), only_looks=True)
    is_grouped, limits = bool(groups.bases), groups.limits
    yield ProbeFinding(
        "job groups",
        is_grouped,
        groups.kind,
        "jobs are ended as one, whatever they have started"
        if is_grouped
        else "a process that clears its environment may outlive a job whose shim is killed",
    )
    yield ProbeFinding(
        "job memory",
        "memory" in limits,
        "of all processes together" if "memory" in limits else "of each process, by its limit",
        "a job has what it asked for, shared memory included"
        if "memory" in limits
        else "only a limit (as in 8GB..10GB) holds, and shared memory is left out",
    )
    yield ProbeFinding(
        "job processes",
        "pids" in limits,
        "bounded" if "pids" in limits else "not bounded: RLIMIT_NPROC counts all of a user",
        "a fork bomb hurts its job only (up --processes-per-job)"
        if "pids" in limits
        else "a fork bomb hurts everybody",
    )
    yield ProbeFinding(
        "job cores",
        "cpu" in limits,
        "by weight" if "cpu" in limits else "not weighed",
        "who asks for more cores gets more when all are busy"
        if "cpu" in limits
        else "busy jobs get equal parts, whatever they asked for",
    )
    is_root = os.getuid() == 0
    yield ProbeFinding(
        "accounts",
        is_root,
        "root" if is_root else "not root",
        "jobs run as the accounts of 'up --accounts'; users without one may not submit"
        if is_root
        else "all jobs run as you: whoever may submit can do what you can",
    )
