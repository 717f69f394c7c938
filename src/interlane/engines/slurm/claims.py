"""What we write into Slurm's own records: whose attempt a job is, in its admin comment.

Only administrators can write there, so that nobody's job can pass itself off as another's.  A
claim of a job that ``sbatch`` brought says which attempt we asked for, and after how many
requeues.  Any other run of it is one that Slurm began by itself, because somebody released or
requeued the job: its number is one that nobody can have asked for, so that a request which was
lost, or comes late, is never taken for it.  A claim of a job that we submitted says which
instance of which attempt it is.
"""

import re
from dataclasses import dataclass
from typing import Final

from interlane.live.port import Attempt
from interlane.model import JobId

MARK: Final = "interlane"
"""How the comments of jobs begin that are held for us."""
LEFT: Final = "Left:"
"""How the administrator's comment of a job begins that was given back to Slurm."""
_FIELD: Final = re.compile(r"([a-z]+)=([^\s=]+)")


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """On a job that ``sbatch`` brought: which attempt it is for."""

    number: int
    restarts: int
    """How often the job had been requeued when it was claimed."""
    serial: int
    submitted_s: float
    first_s: float
    """When it was submitted to Slurm, which says so of a requeued job no longer."""
    begins: bool = True
    """False where this attempt was given up before it began."""
    asks: str = ""
    """The resources that its user asked for, over which we write."""
    pins: str = ""
    """What is written over them."""

    def attempt_number(self, restarts: int) -> int:
        """Return which attempt a run is after so many requeues.

        Of two numbers in a row we may ask for the first, and Slurm begins the second.
        """
        return self.number + (0 if self.begins else 2) + 2 * (restarts - self.restarts)

    def __str__(self) -> str:
        words = f"{MARK} n={self.number} r={self.restarts} s={self.serial}"
        words = f"{words} t={self.submitted_s:.3f} q={self.first_s:.0f} b={int(self.begins)}"
        asks = f" a={self.asks}" if self.asks else ""
        return f"{words}{asks} g={self.pins}" if self.pins else f"{words}{asks}"


@dataclass(frozen=True, slots=True)
class LaunchedClaim:
    """On a job that we submitted: which instance of which attempt it is."""

    attempt: Attempt
    instance: int
    instances: int
    task: int
    """Of which task of its job it is."""
    serial: int
    submitted_s: float

    def __str__(self) -> str:
        at = self.attempt
        words = f"{MARK} id={at.job_id} n={at.number} u={at.uid} i={self.instance}"
        words = f"{words} of={self.instances} k={self.task}"
        return f"{words} s={self.serial} t={self.submitted_s:.3f}"


Claim = HeldClaim | LaunchedClaim
NOTHING: Final = HeldClaim(0, 0, 0, 0.0, 0.0, begins=False)
"""What a job says that has no claim."""


def is_marked(comment: str) -> bool:
    """Tell whether a comment says that a job is held for us."""
    return comment == MARK or comment.startswith(f"{MARK} ")


def read_claim(comment: str) -> Claim | None:
    """Return the claim in an administrator's comment; None if there is none."""
    if not comment.startswith(f"{MARK} "):
        return None
    said = dict(_FIELD.findall(comment))
    try:
        number, serial, at_s = int(said["n"]), int(said["s"]), float(said["t"])
        if "id" in said:
            attempt = Attempt(JobId(said["id"]), number, said["u"])
            place = int(said["i"]), int(said["of"]), int(said["k"])
            return LaunchedClaim(attempt, *place, serial, at_s)
        words = said["b"] == "1", said.get("a", ""), said.get("g", "")
        return HeldClaim(number, int(said["r"]), serial, at_s, float(said["q"]), *words)
    except (KeyError, ValueError):
        return None
