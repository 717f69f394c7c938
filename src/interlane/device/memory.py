"""What jobs need: measured while they run, remembered for the next run of the same program.

A job measures itself at some of its boundaries.  Persistent is what is live there; ephemeral
is the peak since the last measurement minus that, so no iteration in between is missed.  What
counts is the most over a window, not the mean: a lane that is too small by one byte is too
small.

The daemon remembers the last runs of each program, by the script's text and its arguments.
It asks for their maximum and a margin.  A run that needed more counts at once; one that needed
less lowers the estimate when the larger runs have left the window.  So an estimate that is
wrong in either direction is corrected by the runs themselves.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from interlane.device.backends.base import Backend
from interlane.lanes.actions import MemoryDemand

WINDOW_SAMPLES: Final = 16
"""Measurements over which the maximum is taken."""
MOST_BETWEEN: Final = 256
"""Iterations between two measurements, once a job is known."""
WINDOW_RUNS: Final = 4
"""Runs of a program that are remembered."""
MARGIN_PERCENT: Final = 8
"""Added to what was measured, for what the next run does differently."""
MARGIN_BYTES: Final = 4 << 20
GROWTH_AFTER_OVERRUN: Final = 2
"""Times the ephemeral bytes of a run that ran out of memory, for its next admission."""
MOST_PROGRAMS: Final = 1000
FORMAT_VERSION: Final = 1


class MemoryMeter:
    """Measures a job at its boundaries number 4, 16, 64 and 256, and then at every 256th.

    Not oftener, because memory that was given back to be counted has to be fetched again: on a
    CPU the next iteration takes a tenth longer.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._boundaries = 0
        self.due = 1
        """The number of the boundary at which there is something to do."""
        self._samples: deque[MemoryDemand] = deque(maxlen=WINDOW_SAMPLES)
        self._first_bytes = 0
        """The peak until the first boundary."""

    def boundary(self) -> MemoryDemand | None:
        """Note an iteration's end; return what the job needs if it was measured now."""
        return self.reached(self._boundaries + 1)

    def reached(self, boundaries: int) -> MemoryDemand | None:
        """Note that so many iterations have ended, as ``boundary`` does for one."""
        self._boundaries = boundaries
        if boundaries < self.due:
            return None
        self.due = min(4 * boundaries, boundaries + MOST_BETWEEN)
        if boundaries == 1:
            # Peaks from before were those of loading and of the first step's own preparations.
            self._first_bytes = self._backend.peak()
            self._backend.reset_peak()
            return None
        return self.measure()

    def measure(self) -> MemoryDemand:
        """Measure now; return the most of the window."""
        self._backend.fence()
        peak = self._backend.peak()
        persistent = self._backend.live()
        self._backend.reset_peak()
        self._samples.append(MemoryDemand(persistent, max(0, peak - persistent)))
        return most(self._samples)

    def glance(self) -> MemoryDemand:
        """Take the peak so far into account, which costs little and resets nothing."""
        if not self._samples:
            return self.held()
        known = self._samples[-1]
        above = max(known.ephemeral_bytes, self._backend.peak() - known.persistent_bytes)
        self._samples[-1] = MemoryDemand(known.persistent_bytes, above)
        return most(self._samples)

    def held(self) -> MemoryDemand:
        """Return what covers all that was needed, if what is live now stays: keep nothing."""
        persistent, peak = self._backend.live(), self._backend.peak()
        now = MemoryDemand(persistent, max(0, peak - persistent))
        return most((*self._samples, now))

    def last(self) -> MemoryDemand:
        """Return what the job needed; of one that was hardly measured, its beginning, too."""
        if self._samples:
            return self.glance()
        held = self.held()
        above = max(held.ephemeral_bytes, self._first_bytes - held.persistent_bytes)
        return MemoryDemand(held.persistent_bytes, above)


def most(demands: Iterable[MemoryDemand]) -> MemoryDemand:
    """Return what covers each of several demands."""
    seen = tuple(demands)
    return MemoryDemand(
        max(demand.persistent_bytes for demand in seen),
        max(demand.ephemeral_bytes for demand in seen),
    )


def with_margin(demand: MemoryDemand) -> MemoryDemand:
    """Return a demand with room for what the next run does differently."""
    return MemoryDemand(_more(demand.persistent_bytes), _more(demand.ephemeral_bytes))


def _more(amount: int) -> int:
    return amount + amount * MARGIN_PERCENT // 100 + MARGIN_BYTES


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether a job failed for want of memory, on whichever device."""
    words = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in words)
    )


def after_overrun(admitted: MemoryDemand) -> MemoryDemand:
    """Return what to ask for when a job ran out of what it was admitted with."""
    grown = max(MARGIN_BYTES, admitted.ephemeral_bytes) * GROWTH_AFTER_OVERRUN
    return MemoryDemand(admitted.persistent_bytes, grown)


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """What makes two runs alike.

    ``exact`` knows the script's text and every argument; ``shape`` leaves numbers and paths
    out, so that a sweep over learning rates learns from its first member.
    """

    exact: str
    shape: str


_NUMBER_OR_PATH: Final = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?|.*/.*", re.IGNORECASE | re.DOTALL)


def program_of(argv: Sequence[str], folder: Path) -> ProgramKey:
    """Return what identifies a command that would be started in a folder."""
    script, arguments = _script_in(argv)
    text = script
    with suppress(OSError, ValueError):
        text = sha256((folder / script).read_bytes()).hexdigest()
    shape = [_blurred(argument) for argument in arguments]
    return ProgramKey(_digest([text, *arguments]), _digest([text, *shape]))


def _script_in(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the script, module or code of a command, and its arguments."""
    at = 1
    while at < len(argv) - 1 and argv[at].startswith("-"):
        if argv[at] in ("-m", "-c"):
            at += 1
            break
        at += 2 if argv[at] in ("-W", "-X") else 1
    return (argv[at], argv[at + 1 :]) if at < len(argv) else (argv[0] if argv else "", ())


def _blurred(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if equals:
        return f"{name}={_blurred(value)}"
    return "#" if _NUMBER_OR_PATH.fullmatch(argument) else argument


def _digest(words: Sequence[str]) -> str:
    return sha256(json.dumps(words).encode()).hexdigest()[:16]


class Programs:
    """What programs were measured to need, kept in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._runs = _read(file)
        """Demands of the last runs by program, the program that ran last at the end."""

    def demand(
        self, program: ProgramKey, declared: MemoryDemand | None = None
    ) -> MemoryDemand | None:
        """Return what to admit a run with: as measured, else as declared, else unknown."""
        runs = self._runs.get(program.exact) or self._runs.get(program.shape)
        return with_margin(most(runs)) if runs else declared

    def learn(self, program: ProgramKey, measured: MemoryDemand) -> None:
        """Remember a run; a file that cannot be written loses memory, not jobs."""
        for key in {program.exact, program.shape}:
            self._runs[key] = (*self._runs.pop(key, ()), measured)[-WINDOW_RUNS:]
        for key in tuple(self._runs)[:-MOST_PROGRAMS]:
            del self._runs[key]
        with suppress(OSError):
            _write(self._file, self._runs)


def _read(file: Path) -> dict[str, tuple[MemoryDemand, ...]]:
    """Return what was kept: nothing if the file is missing, damaged or of another version."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["version"] != FORMAT_VERSION:
            return {}
        return {
            key: tuple(MemoryDemand(int(live), int(passing)) for live, passing in runs)
            for key, runs in document["programs"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(file: Path, runs: Mapping[str, Sequence[MemoryDemand]]) -> None:
    programs = {
        key: [(run.persistent_bytes, run.ephemeral_bytes) for run in kept]
        for key, kept in runs.items()
    }
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(
        json.dumps({"version": FORMAT_VERSION, "programs": programs}), encoding="utf-8"
    )
    beside.replace(file)
