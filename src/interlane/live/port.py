"""What an engine is: the only thing that the live half knows of whatever runs things.

An engine owns machines and runs attempts at jobs there.  It is asynchronous: ``begin``,
``grow`` and ``stop`` return at once, and what happens comes back as a report into the driver's
inbox.  The scheduler's thread never waits for a socket, a fork or an API server.

What holds for every engine, and what ``testing.conformance.check_engine`` checks:

* An attempt that was reported as ``NeverBegan`` never runs afterwards; one that was asked for
  is begun at most once, however often it is asked for.  The same holds for each growth.
* What is asked of one attempt is carried out in the order in which it was asked.
* An attempt runs as a whole: where a part of a gang cannot begin, or is lost, the engine ends
  the rest before it says what has become of it.
* ``observe`` says what has become of each attempt that it is asked about, so that a report
  that was lost is made good by the next observation.  It also names attempts that nobody asked
  about: the driver ends those that it does not know.
* Reports may come late, twice or out of order: each names its attempt, and one of an attempt
  that is over changes nothing.

Who owns the truth.  Where ``keeps_record`` is false, the driver's store does: an attempt is on
record before it begins.  Where it is true the engine does: it keeps with each attempt what a
``Found`` tells, so that a driver without a store takes up what runs.  Nobody could tell such a
driver what others asked for before it began: once it has started, none of that begins.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from struct import Struct
from typing import Any, Final, Protocol, runtime_checkable

from interlane.lanes.report import DaemonReport, RunReport
from interlane.live.files.job import JobSpec, Origin
from interlane.model import (
    GpuRef,
    InterlaneError,
    InvalidField,
    JobId,
    Machine,
    MachineId,
    Occupied,
    Placement,
    Request,
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run a job; its number makes it different from all others of the job."""

    job_id: JobId
    number: int
    uid: str = ""
    """Of the job: unlike its id, it is never used again, whatever copy a store goes back to."""
    holder: str = field(default="", compare=False)
    """Who runs it or has run it; see ``Traits.holder``."""


@dataclass(frozen=True, slots=True)
class Launch:
    """An attempt that is to begin, all of its gang together; how is the engine's business."""

    attempt: Attempt
    job: JobSpec
    request: Request
    """What the scheduler understood of it."""
    placement: Placement
    """Where it goes; with ``grow``, only what is added."""
    estimate_s: float
    origin: Origin
    growth: int = 0
    """Which growth of the attempt this is; 0 for its begin."""


class Stop(StrEnum):
    """How an attempt is stopped."""

    GRACEFUL = "graceful"
    """By its own signal first, by force after its grace period."""
    CANCEL = "cancel"
    """In the same way, and for good: an engine that can keeps in mind that nobody wants the job
    any more, so that it does not run again if an older copy of the store comes back."""
    KILL = "kill"


# -- reports: what has happened -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begun:
    """The attempt runs."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Pending:
    """The attempt was asked for and is on its way; only ``observe`` says so."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nobody here can tell what has become of the attempt; only ``observe`` says so.

    Whoever holds it may run it still, so that nobody else may.
    """

    attempt: Attempt
    why: str
    """Who holds it, and why that cannot be asked, in one sentence."""


@dataclass(frozen=True, slots=True)
class NeverBegan:
    """The attempt has not run, and never will."""

    attempt: Attempt
    why: str
    lacks: str | None = None
    """What the machine lacked for it at the moment: no fault of the job's."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The attempt ran and has ended, and nothing of it is left."""

    attempt: Attempt
    exit_code: int | None
    """None if nobody knows."""
    why: str | None = None
    """``stopped`` because we asked, ``limit`` when its time was over, ``memory`` when it had
    more than it may, ``lost`` with its machine, ``cancelled`` through the engine by whoever
    wanted it, or for good before the store forgot that, ``cut off`` when what runs jobs was
    killed (perhaps by the job itself), else what went wrong."""
    use: RunReport | None = None
    """What it did on its device, where that is known."""
    cause: str | None = None
    """What took it along, in a sentence, where it was lost or cut off."""

    @property
    def was_stopped(self) -> bool:
        """Whether it ended because we asked."""
        return self.why == "stopped"

    @property
    def was_lost(self) -> bool:
        """Whether it went with its machine, so that it should run again elsewhere."""
        return self.why == "lost"

    @property
    def was_cancelled(self) -> bool:
        """Whether somebody cancelled it through the engine."""
        return self.why == "cancelled"

    @property
    def was_cut_off(self) -> bool:
        """Whether it ended because what runs jobs was killed under it."""
        return self.why == "cut off"


@dataclass(frozen=True, slots=True)
class Grew:
    """The attempt has got the instances that were added."""

    attempt: Attempt
    growth: int


@dataclass(frozen=True, slots=True)
class NeverGrew:
    """The attempt runs on without the instances that were to be added, and never gets them."""

    attempt: Attempt
    growth: int
    why: str


@dataclass(frozen=True, slots=True)
class MachineSeen:
    """There is a machine, and this is what it offers; a second sight replaces the first."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class MachineGone:
    """A machine is gone, and nothing runs there any more."""

    machine_id: MachineId


@dataclass(frozen=True, slots=True)
class Drained:
    """Somebody has drained a machine through the engine, or has let it take work again."""

    machine_id: MachineId
    drained: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """What a device daemon reports, about once a second."""

    report: DaemonReport
    at_s: float
    """On the clock of whoever asked the daemon, which never goes back."""
    gpus: tuple[GpuRef, ...]
    """What the daemon's devices are, by their index in its report."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Somebody submitted a job through the engine and not through our API."""

    key: str
    """What the engine calls it, which is never used again for another job."""
    job: JobSpec
    user: str
    job_id: JobId | None = None
    """What its users call it there, if they shall call it the same here; ``key`` is its uid
    then, so that the engine can name its attempts without being told."""
    submitted_s: float | None = None
    """When it came in there, where that is known."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Whoever submitted it through the engine wants the job no longer."""

    key: str


@dataclass(frozen=True, slots=True)
class Displaced:
    """Another server may work on the engine now, so that this one must end."""

    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """An attempt that runs, and all that a driver must know which has no record of it.

    Observations tell it, and an engine that has begun something by itself.
    """

    attempt: Attempt
    job: JobSpec
    origin: Origin
    placement: Placement
    started_s: float
    growth: int = 0
    """The last growth that was asked for, whatever came of it: numbers are not used again."""


AttemptReport = Begun | NeverBegan | Ended | Grew | NeverGrew
MachineReport = MachineSeen | MachineGone | Drained | Occupied
Report = AttemptReport | Found | MachineReport | Measured | Wanted | Withdrawn | Displaced
Sight = Pending | Begun | NeverBegan | Ended | Unanswered
"""What an observation says of an attempt."""

Tell = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything as it is now."""

    machines: tuple[Machine, ...]
    """All that there are; those that were known and are not among them are gone."""
    attempts: "tuple[Sight, ...]" = ()
    """What has become of each attempt that was asked about, and of any other that runs."""
    drained: frozenset[MachineId] = frozenset()
    """Machines that somebody has drained through the engine."""
    occupied: tuple[Occupied, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    """All jobs that came in through the engine and that somebody still wants, those that run
    included; one that has not ended and is not among them was withdrawn."""
    found: tuple[Found, ...] = ()
    """Attempts that run: all where the engine keeps the record, else those that nobody named
    and of which the engine knows enough.  Also those that the engine began by itself and that
    have ended since, beside their ends in ``attempts``."""
    serial: int = 0
    """The highest serial of a job that ever began, as far as the engine knows."""
    apart: frozenset[str] = frozenset()
    """Keys of jobs that came in through the engine, that somebody wants and that are not ours
    to schedule; there may be a record of them, of a time when they were or when we looked on.
    """


@dataclass(frozen=True, slots=True)
class Output:
    """What an attempt printed."""

    begin: int
    """The byte that ``data`` begins with: the first still kept from the one asked for on."""
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Traits:
    """What differs between engines and matters to whoever decides or shows."""

    name: str
    """What users call it, as in ``up --engine local``."""
    cluster: str
    """What its machines are called together."""
    keeps_record: bool
    """Whether the engine owns the truth about what runs."""
    spans_machines: bool
    """Whether the instances of one job may be on several machines."""
    grows: bool
    """Whether a gang that runs can be given more instances."""
    decides: bool = True
    """Whether we decide what runs where; where not, the engine does, we look on, and questions
    say what we would do."""
    emulated: bool = False
    """Whether its devices are parts of a CPU that stand in for GPUs."""
    turns: str | None = None
    """The order in which jobs that share a device take turns; None if they do not."""
    batch_max: int = 1_000
    """Items that the driver takes in before it decides: fewer where each one is waited for, and
    more where what is stored for many at a time is stored faster."""
    holder: str = ""
    """Goes on record with every attempt: which host and folder it runs from.  Only the engine
    reads it.  Empty where whoever asks can ask for everything."""


HUNG_UP: Final = "nobody was at its terminal"
"""Why an attempt ended whose terminal everybody had left."""


@runtime_checkable
class DialsJobs(Protocol):
    """An engine that also leads to a job's terminal and ports."""

    def dial(self, attempt: Attempt, port: int | None) -> Any:  # noqa: ANN401 - a socket
        """Return a socket that leads to a port of an attempt, or to its terminal if None.

        Raises ``NotThere`` as long as nothing of the attempt listens there.  To a terminal
        one sends frames (``typed_frame``, ``window_frame``); what comes back is what it prints.
        """
        ...


class NotThere(InterlaneError):
    """Nothing listens where somebody wants to be led to."""


_HEAD: Final = Struct("!cI")
_WINDOW: Final = Struct("!HH")


def typed_frame(data: bytes) -> bytes:
    """Return what is sent to a terminal for what somebody types."""
    return _HEAD.pack(b"d", len(data)) + data


def window_frame(rows: int, columns: int) -> bytes:
    """Return what is sent to a terminal whose window has another size."""
    return _HEAD.pack(b"w", _WINDOW.size) + _WINDOW.pack(rows, columns)


def check_dials(job: JobSpec, engine: "Engine") -> None:
    """Refuse a job that wants to be led to where its engine leads nobody."""
    if isinstance(engine, DialsJobs):
        return
    rule = f"the engine {engine.traits.name} leads nobody to a job; 'local' does"
    if job.terminal is not None:
        raise InvalidField("terminal", "given", rule)
    if job.ports:
        raise InvalidField("ports", job.ports, rule)


class Engine(Protocol):
    """Owns machines and runs attempts; see the module's text."""

    traits: Traits

    def start(self, tell: Tell) -> None:
        """Begin to report; called once, before anything else."""
        ...

    def close(self) -> None:
        """Stop reporting; what runs goes on."""
        ...

    def check(self, job: JobSpec, user: str, *, is_admin: bool = False) -> None:
        """Raise why a job could never run here, or not for this user; in any thread."""
        ...

    def observe(self, known: Collection[Attempt]) -> Observation:
        """Look at everything; may take its time, and is never called by the scheduler."""
        ...

    def begin(self, launch: Launch) -> None:
        """Ask for an attempt; ``Begun`` or ``NeverBegan`` follows.

        One that runs already in another place is stopped: who asked for it there is forgotten,
        because an old copy of the store was put back.
        """
        ...

    def grow(self, launch: Launch) -> None:
        """Ask for more instances of an attempt; ``Grew`` or ``NeverGrew`` follows."""
        ...

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """Ask for the end of an attempt, whether it is known or not."""
        ...

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Let go of a job that came in through the engine and has ended here; see ``Wanted``.

        Asked when it was refused, and whenever an observation still has it.  One that was
        cancelled here is to be cancelled there, too; any other is left to the engine, which
        may tell its owner why.
        """
        ...

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Return what an attempt printed; a negative ``begin`` counts from the end."""
        ...
