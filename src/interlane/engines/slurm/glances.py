"""What changes of jobs that are known, in a line for each: it costs less than all of them.

``squeue --json`` prints everything of every job.  A glance is a table of what may change; it
has no comments, so that what we have written there since the last look is remembered.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from interlane.engines.slurm.claims import read_claim
from interlane.engines.slurm.gres import hostnames
from interlane.engines.slurm.reading import RUNNING, WAITING, SlurmJob, shell_code

_FIELDS: Final = (
    *("JobID", "State", "PriorityLong", "SubmitTime", "Partition", "RestartCnt"),
    *("tres-per-node", "tres-per-job", "StartTime", "EndTime", "exit_code", "NodeList"),
)
GLANCE: Final = "--Format=" + ",".join(f"{name}:|" for name in _FIELDS)
"""The option of ``squeue`` that prints such a table."""
_NONE: Final = ("N/A", "(null)")


def read_glance(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the line of each job; lines that are none are left out."""
    for line in text.splitlines():
        words = ["" if word in _NONE else word for word in line.split("|")]
        if len(words) == len(_FIELDS) + 1 and words[0].isdecimal():
            yield int(words[0]), words


def updated(job: SlurmJob, words: list[str]) -> SlurmJob | None:
    """Return a job as a line shows it; None if it is another, or cannot be understood."""
    try:
        state, restarts, submitted_s = words[1], int(words[5]), float(words[3])
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
