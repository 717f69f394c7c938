"""What functions need of others: somebody who runs replicas, and the jobs beside them.

A replica is a function that is loaded on a GPU and answers calls.  The gateway says when one is
loaded and where, and what it is asked; how it runs is the engine's business.  All of this
happens on the event loop, and nothing waits: what becomes of a replica is reported.

What holds for every engine:

* Reports of a replica come after ``load`` has returned.  ``ReplicaEnded`` comes once, whatever
  happens, and is the last.
* Each call is answered at most once, and none after ``CutOff``.
* A call that ``CutOff`` does not name was not begun and never will be: it may be sent again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from interlane.functions.learned import Learned
from interlane.live.driver.state import Snapshot
from interlane.live.files.function import FunctionSpec
from interlane.live.functions.calls import Reply
from interlane.live.measure.monitor import Monitor
from interlane.live.store.rows import FunctionRow
from interlane.model import GpuRef

# -- reports: what has become of a replica --------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """It is loaded, and takes calls."""


@dataclass(frozen=True, slots=True)
class ReplicaFailed:
    """It cannot be loaded, or is of no use; it must be killed."""

    why: str


@dataclass(frozen=True, slots=True)
class Answered:
    """It has answered a call, each of its inputs in order."""

    number: int
    replies: Sequence[Reply]


@dataclass(frozen=True, slots=True)
class CutOff:
    """It answers nothing more, and will end."""

    begun: Collection[int]
    """Calls without an answer that it may have begun."""


@dataclass(frozen=True, slots=True)
class ReplicaEnded:
    """Nothing is left of it, and its memory is free."""

    why: str


ReplicaReport = Ready | ReplicaFailed | Answered | CutOff | ReplicaEnded
Tell = Callable[[ReplicaReport], None]


# -- the engine -----------------------------------------------------------------------


class ReplicaLoaded(Protocol):
    """A replica that was asked for."""

    @property
    def pid(self) -> int | None:
        """Its process, if it is one of this machine."""
        ...

    def send(self, number: int, bodies: Sequence[bytes]) -> None:
        """Call it with inputs, which are JSON; the number was never used before."""
        ...

    def memory_mib(self) -> float | None:
        """Measure the memory that it has taken; None where nobody can tell."""
        ...

    def kill(self) -> None:
        """End it, whatever it does."""
        ...


class Environment(Protocol):
    """What replicas of one function have in common, such as imports; ready until closed."""

    def load(self, number: int, gpu: GpuRef, tell: Tell) -> ReplicaLoaded:
        """Load a replica on a GPU; its number was never used before."""
        ...

    def close(self) -> None:
        """Give up what was prepared; no replica is left."""
        ...


class ReplicaEngine(Protocol):
    """Runs replicas; see the module's text."""

    def check(self, spec: FunctionSpec, user: str, *, is_admin: bool = False) -> None:
        """Raise ``InvalidInput`` for a function that could never run here."""
        ...

    def open(
        self, spec: FunctionSpec, user: str, printed: Callable[[bytes], None]
    ) -> Environment:
        """Prepare for replicas of a user's function; what they print is told."""
        ...

    def close(self) -> None:
        """End all replicas."""
        ...


# -- the driver -----------------------------------------------------------------------


class FunctionStore(Protocol):
    """Where functions are kept; may be called from any thread."""

    def functions(self) -> Iterable[FunctionRow]:
        """Return all functions."""
        ...

    def put_function(self, row: FunctionRow) -> None:
        """Keep a function, in place of the one of its name."""
        ...

    def drop_function(self, name: str) -> None:
        """Forget a function."""
        ...


class LearnedStore(Protocol):
    """Where what was learned is kept, by function; may be called from any thread."""

    def read(self) -> Mapping[str, Learned]:
        """Return all that is kept."""
        ...

    def write(self, learned: Mapping[str, Learned]) -> None:
        """Keep these, in place of what was kept of the same functions."""
        ...

    def drop(self, name: str) -> None:
        """Forget a function."""
        ...


class JobsPort(Protocol):
    """What functions see of jobs and of the devices that they share with them."""

    @property
    def store(self) -> FunctionStore:
        """Where functions are kept."""
        ...

    @property
    def monitor(self) -> Monitor:
        """What is measured of jobs, and who is told of co-runs."""
        ...

    def now_s(self) -> float:
        """Return the time that events get."""
        ...

    def snapshot(self) -> Snapshot:
        """Return jobs and machines as they are stored now."""
        ...
