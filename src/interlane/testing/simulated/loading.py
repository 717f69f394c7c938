"""Load modules of interlane as they are, against a simulated machine.

Each module is executed once more, apart from the one that everybody imports: the modules of the
system that it imports are those of ``calls`` and its neighbours, and the modules of interlane
that talk to the system are loaded the same way.  Everything else is shared with the real ones,
so that what these modules tell others is of the usual classes.
"""

import builtins
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from interlane.testing.simulated.calls import (
    Interpreter,
    Locks,
    Native,
    ProcessWatch,
    RandomCalls,
    ResourceLimits,
    SignalCalls,
    Times,
    fork,
    open_file,
    posix,
)
from interlane.testing.simulated.paths import DiskTrees, Paths
from interlane.testing.simulated.sockets import SharedMemory, Sockets, Streams
from interlane.testing.simulated.threads import Pools, Select, Selectors, Threading

SYSTEM: Final[Mapping[str, object]] = {
    "os": posix,
    "time": Times(),
    "fcntl": Locks(),
    "signal": SignalCalls(),
    "resource": ResourceLimits(),
    "ctypes": Native(),
    "secrets": RandomCalls(),
    "sys": Interpreter(),
    "threading": Threading(),
    "concurrent.futures": Pools(),
    "selectors": Selectors(),
    "select": Select(),
    "pathlib": Paths(),
    "socket": Sockets(),
    "mmap": SharedMemory(),
    "io": Streams(),
    "interlane.engines.local.trees": DiskTrees(),
    "interlane.device.activity": ProcessWatch(),
}
"""Modules of the system, by name."""

ENGINE: Final = "interlane.engines.local"
DEVICE: Final = "interlane.device"
SIMULATED: Final = frozenset(
    {
        "interlane.live.folder",
        "interlane.live.driver.clock",
        *(
            f"{ENGINE}.{name}"
            for name in (
                *("attempt_group", "claims", "engine", "groups", "launch", "others"),
                *("places", "ranks", "retention", "runner", "shim", "shortage"),
            )
        ),
        *(
            f"{DEVICE}.{name}"
            for name in (
                *(
                    "admission",
                    "client",
                    "daemon",
                    "hung",
                    "inventory",
                    "journal",
                    "limits",
                    "link",
                    "page",
                ),
                *("peers", "recovery", "rendezvous", "sessions", "shared", "shared_job"),
                *("talk", "holders", "status", "still", "trials", "needs", "tally", "settings"),
            )
        ),
        "interlane.live.functions.deployed",
        "interlane.live.functions.gateway",
    }
)
"""Modules that are loaded against the simulated machine."""

_FORK: Final = "_fork"
"""What a module forks with: it returns twice in reality, and calls a function here."""


class _Package(ModuleType):
    """A package some of whose modules are others than usual."""

    def __init__(self, real: ModuleType, ours: Mapping[str, ModuleType]) -> None:
        super().__init__(real.__name__)
        self._real = real
        for name, module in ours.items():
            setattr(self, name, module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


class _Loader:
    def __init__(self) -> None:
        self._loaded: dict[str, ModuleType] = {}
        self._builtins = {
            **vars(builtins),
            "__import__": self._import,
            "open": open_file,
        }

    def load(self, name: str) -> ModuleType:
        """Return a module that lives on the simulated machine."""
        if name in self._loaded:
            return self._loaded[name]
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        importlib.import_module(name)  # the real one: others find its classes there
        module = ModuleType(name)
        module.__dict__.update(
            __builtins__=self._builtins, __file__=spec.origin, __package__=spec.parent
        )
        self._loaded[name] = module
        code = spec.loader.get_code(name)  # type: ignore[attr-defined]
        exec(code, module.__dict__)
        if hasattr(module, _FORK):
            setattr(module, _FORK, fork)
        return module

    def _import(
        self,
        name: str,
        globals_: Mapping[str, Any] | None = None,
        locals_: Mapping[str, Any] | None = None,
        names: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        if name in SYSTEM:
            return SYSTEM[name]
        if name in SIMULATED:
            return self.load(name)
        real = importlib.__import__(name, globals_, locals_, names, level)
        ours = {one: f"{name}.{one}" for one in names or () if f"{name}.{one}" in SIMULATED}
        if not ours:
            return real
        return _Package(real, {one: self.load(full) for one, full in ours.items()})


_loader: Final = _Loader()


def simulated(name: str) -> Any:  # noqa: ANN401 - a module, whose names are looked up
    """Return a module of interlane as it is on a simulated machine; it is loaded once."""
    return _loader.load(name)
