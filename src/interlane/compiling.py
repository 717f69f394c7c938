"""How hot loops are compiled, and when.

Compiling all of the scheduler takes a minute or two, once; then its machine code is on disk.
A small run is done long before that.  So each function begins as what it is written as, plain
Python, unless its machine code is on disk, and everything is compiled when plain code has cost
this process more than its patience.  Both ways work on the same tables and give the same
digits, so a run may change from one to the other at any call.

numba asks every function for code when it meets arguments of new types.  That is where the
choice is made; what is compiled is called directly, as if none of this were here.  A plain
function calls its plain twins and not back through numba, which would cost more than they do.

Every module with compiled code is named in ``_compiled_cache``.
"""

from contextvars import ContextVar
from functools import cache
from time import perf_counter
from types import FunctionType
from typing import Any, Final

import numpy as np
from numba import njit
from numba.core import config, event

from interlane._compiled_cache import WATCHERS

PATIENCE_S: Final = 8.0
"""Seconds of plain code after which a process compiles."""


class _NotNow(Exception):
    """Raised where numba is about to compile and may only look on disk."""


class _Pace:
    """How long this process bears plain code, and what it has cost."""

    def __init__(self) -> None:
        self.patience_s = PATIENCE_S
        self.spent_s = 0.0
        self.is_inside = False
        self.look = 0
        """How often the disk was said to have something new."""

    @property
    def is_patient(self) -> bool:
        """Whether plain code is still better than compiling."""
        return self.spent_s < self.patience_s


_pace: Final = _Pace()
_only_from_disk: ContextVar[bool] = ContextVar("only_from_disk", default=False)


def compile_at_once() -> None:
    """Let this process run no plain code from now on."""
    _pace.patience_s = 0.0


def compile_never() -> None:
    """Let this process take compiled code from disk alone: whoever serves cannot wait."""
    _pace.patience_s = float("inf")


def look_again() -> None:
    """Say that there may be compiled code on disk that was not there before."""
    _pace.look += 1


# -- the choice -----------------------------------------------------------------------


def _switching(dispatcher: Any) -> Any:
    """Let a function of numba be plain until compiling it is worth it."""
    if config.DISABLE_JIT:
        return dispatcher
    from_numba = dispatcher._compile_for_args
    missed = -1

    def code_for(*args: Any) -> Any:
        nonlocal missed
        if not _pace.is_patient:
            return from_numba(*args)
        if missed != _pace.look:
            before = _only_from_disk.set(True)
            try:
                return from_numba(*args)
            except _NotNow:
                missed = _pace.look
            finally:
                _only_from_disk.reset(before)
        return _counted(plain(dispatcher))

    dispatcher._compile_for_args = code_for
    return dispatcher


@cache
def plain(dispatcher: Any) -> Any:
    """Return the plain twin of a compiled function, which calls plain twins itself."""
    written = dispatcher.py_func
    return FunctionType(
        written.__code__,
        _plain_names(written.__module__, written.__globals__),
        written.__name__,
        written.__defaults__,
        written.__closure__,
    )


_NAMES: Final[dict[str, dict[str, Any]]] = {}


def _plain_names(module: str, names: dict[str, Any]) -> dict[str, Any]:
    """Return the names that a module's functions see, with plain twins for compiled ones."""
    if module not in _NAMES:
        twins = _NAMES[module] = dict(names)
        for name, value in names.items():
            if hasattr(value, "py_func"):
                twins[name] = plain(value)
    return _NAMES[module]


@cache
def _counted(twin: Any) -> Any:
    """Return a plain function that adds what it costs to what this process has borne."""

    def run(*args: Any) -> Any:
        if _pace.is_inside:  # another thread's time is not counted twice
            return _quietly(twin, args)
        _pace.is_inside, begin_s = True, perf_counter()
        try:
            return _quietly(twin, args)
        finally:
            _pace.spent_s += perf_counter() - begin_s
            _pace.is_inside = False

    return run


def _quietly(twin: Any, args: tuple[Any, ...]) -> Any:
    """Call it as compiled code behaves: integers wrap and divisions by zero are infinite."""
    with np.errstate(all="ignore"):
        return twin(*args)


# -- telling of it --------------------------------------------------------------------


class _Gate(event.Listener):  # type: ignore[misc]
    """Sees every compilation begin and end, and stops those that are not wanted now."""

    def __init__(self) -> None:
        self.known = 0
        self.done = 0

    def on_start(self, event: Any) -> None:
        """Refuse, or tell that one begins."""
        if _only_from_disk.get():
            raise _NotNow
        self._tell()

    def on_end(self, event: Any) -> None:
        """Tell that one has ended; one that was refused ends, too."""
        if _only_from_disk.get():
            return
        self.done += 1
        self._tell()

    def _tell(self) -> None:
        for watcher in WATCHERS:
            watcher(self.done, max(self.known, self.done))


_gate: Final = _Gate()
event.register("numba:compile", _gate)


def compiled_so_far() -> int:
    """Return how many functions this process compiled; reading them from disk is none."""
    return _gate.done


# -- the decorators -------------------------------------------------------------------


def compiled(function: Any) -> Any:
    """Compile a function when that is worth it, and keep the result on disk."""
    _gate.known += 1
    return _switching(_COMPILE(function))


def inlined(function: Any) -> Any:
    """Do the same for a leaf of the hottest loops: a call that passes tables costs more."""
    return _switching(_INLINE(function))


_COMPILE: Final = njit(cache=True, error_model="numpy")
_INLINE: Final = njit(cache=True, error_model="numpy", inline="always")
