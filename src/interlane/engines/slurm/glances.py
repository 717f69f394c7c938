"""What changes of jobs that are known, in a line for each: it costs less than all of them.

``squeue --json`` prints everything of every job.  A glance is a table of what may change; it
has no comments, so that what we have written there since the last look is remembered.  Jobs
that the snippet for submissions has held since are read from another table, which has what a
user wrote between marks that nobody can foresee.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from interlane.engines.slurm.claims import MARK, read_claim
from interlane.engines.slurm.gres import hostnames, read_gres
from interlane.engines.slurm.reading import LEAVES, RUNNING, WAITING, SlurmJob, shell_code

_FIELDS: Final = (
    *("JobID", "State", "PriorityLong", "SubmitTime", "Partition", "RestartCnt"),
    *("tres-per-node", "tres-per-job", "StartTime", "EndTime", "exit_code", "NodeList"),
)
GLANCE: Final = "--Format=" + ",".join(f"{name}:|" for name in _FIELDS)
"""The option of ``squeue`` that prints such a table."""
_NONE: Final = ("N/A", "(null)")
_ARRIVED: Final = (
    *("JobID", "State", "PriorityLong", "SubmitTime", "Partition", "RestartCnt"),
    *("tres-per-node", "tres-per-job", "UserID", "UserName", "NumNodes", "NumCPUs"),
    *("tres-alloc", "TimeLimit", "admin_comment", "STDOUT", "Command", "Name"),
    *("ArrayTaskID", "HetJobID", "Dependency", "ReqNodes", "Feature", "Reservation"),
)
_PLAIN: Final = _ARRIVED.index("ArrayTaskID")
"""What comes from here on, only a look at everything can tell."""
_MEMORY: Final = re.compile(r"(?:^|,)mem=(\d+)([MGT])(?:,|$)")
_MIB: Final = {"M": 1, "G": 1 << 10, "T": 1 << 20}
_LIMIT: Final = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")


def read_glance(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the line of each job; lines that are none are left out."""
    for line in text.splitlines():
        words = ["" if word in _NONE else word for word in line.split("|")]
        if len(words) == len(_FIELDS) + 1 and words[0].isdecimal():
            yield int(words[0]), words


def arrived_words(mark: str) -> str:
    """Return the option of ``squeue`` that prints all of a job that has just come."""
    return "--Format=" + ",".join(f"{name}:{mark}" for name in _ARRIVED)


def read_arrived(text: str, mark: str) -> Iterator[SlurmJob]:
    """Yield jobs that are held for us and that a line shows wholly."""
    for record in text.split(f"{mark}\n"):
        words = ["" if word in _NONE else word for word in record.split(mark)]
        if len(words) == len(_ARRIVED):
            is_plain = not any(words[_PLAIN:])
            job = _arrived(dict(zip(_ARRIVED, words, strict=True))) if is_plain else None
            if job is not None:
                yield job


def _arrived(said: dict[str, str]) -> SlurmJob | None:
    """Return a job that the snippet for submissions holds; None if there is more to know."""
    is_held = (said["State"], said["PriorityLong"], said["RestartCnt"]) == ("PENDING", "0", "0")
    memory = _MEMORY.search(said["tres-alloc"])
    limit = _LIMIT.fullmatch(said["TimeLimit"])
    is_endless = said["TimeLimit"] in ("UNLIMITED", "")
    is_known = is_held and memory is not None and (limit is not None or is_endless)
    if not is_known or said["admin_comment"] != MARK:
        return None
    assert memory is not None, "it is known"
    try:
        nodes, submitted_s = int(said["NumNodes"]), float(said["SubmitTime"])
        return SlurmJob(
            number=int(said["JobID"]),
            array=0,
            task=None,
            tasks="",
            state=said["State"],
            reason="",
            user=said["UserName"],
            uid=int(said["UserID"]),
            partition=said["Partition"],
            name=said["Name"],
            command=said["Command"],
            comment="",
            admin_comment=MARK,
            submitted_s=submitted_s,
            first_s=submitted_s,
            started_s=0.0,
            ended_s=0.0,
            restarts=0,
            priority=0,
            nodes=(),
            gres=(),
            asked=tuple(read_gres(said["tres-per-node"])),
            asked_in_all=tuple(read_gres(said["tres-per-job"])),
            node_count=nodes,
            cpus=int(said["NumCPUs"]),
            memory_mib=-(-int(memory[1]) * _MIB[memory[2]] // nodes),
            limit_s=None if limit is None else _seconds(limit),
            dependency="",
            exit_code=0,
            output=said["STDOUT"],
            tres_per_node=said["tres-per-node"],
            tres_per_job=said["tres-per-job"],
        )
    except (ValueError, ZeroDivisionError):
        return None


def _seconds(limit: re.Match[str]) -> float:
    """Return the seconds of ``1-02:03:04``."""
    days, hours, minutes, seconds = (int(one or 0) for one in limit.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def settled(job: SlurmJob, known: SlurmJob | None) -> SlurmJob:
    """Return a job as it is; one that was requeued is its last run until that leaves its nodes.

    Slurm counts the next run from the moment on that it is asked to requeue a job.

    Args:
        job: as Slurm shows it.
        known: as it was before, where somebody has seen it.
    """
    if job.state != LEAVES:
        return job
    claim = job.held_claim
    before = known.restarts if known is not None else claim.restarts
    counts = known is not None or claim.begins
    return replace(job, restarts=min(job.restarts, before)) if counts else job


def updated(job: SlurmJob, words: list[str]) -> SlurmJob | None:
    """Return a job as a line shows it; None if it is another, or cannot be understood."""
    try:
        state, restarts, submitted_s = words[1], int(words[5]), float(words[3])
        if state == LEAVES:
            restarts = min(restarts, job.restarts)  # as ``settled`` has it
        if submitted_s != job.submitted_s and restarts <= job.restarts:
            return None
        priority = int(words[2])
        if (state, priority, restarts) == (job.state, job.priority, job.restarts) and (
            words[4], words[6], words[7]) == (job.partition, job.tres_per_node, job.tres_per_job
        ):  # fmt: skip
            return job
        has_run = state not in WAITING
        return replace(
            job,
            state=state,
            priority=priority,
            partition=words[4],
            submitted_s=submitted_s,
            restarts=restarts,
            tres_per_node=words[6],
            tres_per_job=words[7],
            started_s=float(words[8] or 0) if has_run else 0.0,
            ended_s=float(words[9] or 0) if has_run and state not in RUNNING else 0.0,
            exit_code=shell_code(int(words[10])),
            nodes=tuple(hostnames(words[11])),
            gres=job.gres if restarts == job.restarts else (),
        )
    except ValueError:
        return None


@dataclass(slots=True)
class WrittenComments:
    """Comments that we have written, until a look has shown them; any thread may ask."""

    _comments: dict[str, tuple[str, float]] = field(default_factory=dict)
    _doubted: dict[str, float] = field(default_factory=dict)
    """Jobs of which nobody knows whether a comment has reached them."""
    _lock: Lock = field(default_factory=Lock)

    def wrote(self, job_id: str, comment: str) -> None:
        """Note a comment that Slurm has taken."""
        with self._lock:
            self._comments[job_id] = comment, time.monotonic()

    def doubt(self, job_id: str) -> None:
        """Note that Slurm may have taken a comment."""
        with self._lock:
            self._doubted[job_id] = time.monotonic()

    def is_doubted(self, job_id: str) -> bool:
        """Tell whether only a look can show what a job's comment is."""
        return job_id in self._doubted

    def seen(self, since_s: float) -> None:
        """Note a look that began at a moment: it shows what was written before."""
        with self._lock:
            self._comments = {
                one: said for one, said in self._comments.items() if said[1] >= since_s
            }
            self._doubted = {one: at for one, at in self._doubted.items() if at >= since_s}

    def over(self, job: SlurmJob) -> SlurmJob:
        """Return a job with the comment that it has by now."""
        said = self._comments.get(job.id)
        if said is None or said[0] == job.admin_comment:
            return job
        return replace(job, admin_comment=said[0], claim=read_claim(said[0]))
