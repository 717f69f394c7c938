"""The state of one device: which replicas are on it.

A replica is *idle*, *busy* or *loading*.  Memory is held from the decision to load on, and
given back with the decision to part, so that actions that are carried out in order never exceed
the device.  A busy or loading replica is never unloaded.  Every function is on disk.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from interlane.model import CapacityViolated, InvalidField, InvalidInput, UnknownName
from interlane.model.function import Function

# -- actions ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadReplica:
    """Bring one replica from disk onto the device."""

    function: str


@dataclass(frozen=True, slots=True)
class Unload:
    """Drop one idle replica; the copy on disk stays."""

    function: str


PoolAction = LoadReplica | Unload


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Why a replica cannot be loaded now."""

    function: str
    needed_mib: int
    found_mib: int

    def __str__(self) -> str:
        return (
            f"Function {self.function} needs {self.needed_mib} MiB, but only {self.found_mib} "
            f"are free or held by idle replicas; it can be loaded when one has served."
        )


@dataclass(slots=True)
class _Status:
    """The replicas of one function."""

    idle: int = 0
    busy: int = 0
    loading: int = 0

    @property
    def on_device(self) -> int:
        return self.idle + self.busy + self.loading


Worth = Callable[[str], float]
"""What it is worth to have a function here, per MiB; the least worthy goes first."""


class Pool:
    """Replicas on one device, and the room that is left."""

    def __init__(self, functions: Iterable[Function], *, device_mib: int) -> None:
        self.device_mib = device_mib
        self.functions: Mapping[str, Function] = {one.id: one for one in functions}
        self._status = {name: _Status() for name in self.functions}
        self._device_used_mib = 0
        for one in self.functions.values():
            if one.memory_mib <= 0:
                raise InvalidField("memory_mib", one.memory_mib, "it must be above 0")
            if one.memory_mib > device_mib:
                raise InvalidInput(
                    f"Function {one.id} needs {one.memory_mib} MiB, but the device has "
                    f"{device_mib}; give it a larger one."
                )

    # -- questions --------------------------------------------------------------------

    @property
    def device_free_mib(self) -> int:
        """Memory of the device that nothing holds."""
        return self.device_mib - self._device_used_mib

    def replicas(self, name: str) -> int:
        """Return the replicas on the device, those that are loading included."""
        return self._of(name).on_device

    def idle(self, name: str) -> int:
        """Return the replicas that could serve now."""
        return self._of(name).idle

    def is_there(self, name: str) -> bool:
        """Tell whether any replica is loaded, idle or busy."""
        status = self._of(name)
        return status.idle + status.busy > 0

    def _of(self, name: str) -> _Status:
        if name not in self._status:
            raise UnknownName("function", name, self._status)
        return self._status[name]

    # -- events ------------------------------------------------------------------------

    def asked(self, name: str) -> bool:
        """Give a request to an idle replica; False where there is none: a cold start."""
        status = self._of(name)
        if not status.idle:
            return False
        status.idle -= 1
        status.busy += 1
        return True

    def served(self, name: str) -> None:
        """Note that a replica has answered."""
        status = self._of(name)
        self._must(status.busy > 0, f"{name} has served, but no replica was busy")
        status.busy -= 1
        status.idle += 1

    def loaded(self, name: str) -> None:
        """Note that a replica is ready."""
        status = self._of(name)
        self._must(status.loading > 0, f"{name} is loaded, but was not loading")
        status.loading -= 1
        status.idle += 1

    # -- actions -----------------------------------------------------------------------

    def load(self, name: str, worth: Worth) -> tuple[PoolAction, ...] | NoRoom:
        """Ask for one more replica; idle ones of less worth make room, the least first."""
        status, need_mib = self._of(name), self.functions[name].memory_mib
        parting = self.parting(name, worth)
        if parting is None:
            found_mib = self.device_free_mib + sum(
                other.idle * self.functions[at].memory_mib
                for at, other in self._status.items()
                if at != name
            )
            return NoRoom(name, need_mib, found_mib)
        unloads = [self.part(victim) for victim in parting]
        status.loading += 1
        self._device_used_mib += need_mib
        return (*unloads, LoadReplica(name))

    def parting(self, name: str, worth: Worth) -> list[str] | None:
        """Return whose idle replicas must part for one more; None where it is not enough."""
        parting: list[str] = []
        missing_mib = self.functions[name].memory_mib - self.device_free_mib
        if missing_mib <= 0:
            return parting
        others = [at for at, one in self._status.items() if one.idle and at != name]
        for victim in sorted(others, key=worth):
            for _ in range(self._status[victim].idle):
                parting.append(victim)
                missing_mib -= self.functions[victim].memory_mib
                if missing_mib <= 0:
                    return parting
        return None

    def part(self, name: str) -> Unload:
        """Ask that an idle replica is unloaded."""
        status = self._of(name)
        self._must(status.idle > 0, f"{name} should part, but has no idle replica")
        status.idle -= 1
        self._device_used_mib -= self.functions[name].memory_mib
        return Unload(name)

    # -- checks -----------------------------------------------------------------------

    def check(self) -> None:
        """Count everything anew and compare; raise where the state is wrong."""
        statuses = self._status.items()
        device_mib = sum(one.on_device * self.functions[at].memory_mib for at, one in statuses)
        self._must(device_mib == self._device_used_mib, "the device's memory is miscounted")
        self._must(device_mib <= self.device_mib, "the device holds more than it has")
        for at, one in statuses:
            least = min(one.idle, one.busy, one.loading)
            self._must(least >= 0, f"{at} has fewer than no replicas")

    def _must(self, holds: bool, what: str) -> None:  # noqa: FBT001 - an assertion in words
        if not holds:
            raise CapacityViolated(what)
