"""Where compiled code is kept between runs.

numba looks at the file of a compiled function to see whether its saved machine code is still
good, but not at the files of the functions inlined into it.  So the code is kept in a folder
named after the sources of all compiled modules: other sources, other folder.
"""

import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

COMPILED_MODULES: Final = (
    "compiling.py",
    "kernel/compiled.py",
    "metrics/compiled.py",
    "metrics/fragments.py",
    "mig/compiled.py",
    "policy/contention.py",
    "policy/packing.py",
    "policy/rows.py",
    "policy/scores.py",
    "policy/victims.py",
    "predict/arrivals/compiled.py",
    "predict/compiled.py",
    "tables/compiled.py",
    "traces/synth_pai/compiled.py",
)

Watcher = Callable[[int, int], None]
"""Told how many functions this process has compiled, and how many there are at most."""

WATCHERS: Final[list[Watcher]] = []
"""Who is told whenever a function is about to be compiled, and when that is done.

They are here because whoever wants to know should not have to import a compiler for it.
"""


def use_own_cache() -> None:
    """Tell numba where to keep compiled code, unless the user has."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    sources = sha256()
    for module in COMPILED_MODULES:
        sources.update((_PACKAGE / module).read_bytes())
    for base in (_PACKAGE / "__pycache__", Path.home() / ".cache" / "interlane"):
        folder = base / f"numba-{sources.hexdigest()[:16]}"
        if _can_write(folder):
            os.environ["NUMBA_CACHE_DIR"] = str(folder)
            return


_PACKAGE: Final = Path(__file__).parent


def is_complete() -> bool:
    """Return whether all compiled code is on disk."""
    mark = _mark()
    return mark is not None and mark.exists()


def note_complete() -> None:
    """Note that all compiled code is on disk."""
    mark = _mark()
    if mark is not None:
        mark.touch()


def _mark() -> Path | None:
    """Return the file that says so; it is named after what numba asks before it reads code."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        return None
    # Both take long to load, and not every command asks.
    import platform
    from importlib.metadata import version

    stamp = sha256(f"{version('numba')} {sys.version} {platform.processor()}".encode())
    for module in COMPILED_MODULES:
        file = _PACKAGE / module
        stamp.update(f"{file.stat().st_mtime_ns} {file.stat().st_size}".encode())
    return Path(os.environ["NUMBA_CACHE_DIR"]) / f"complete-{stamp.hexdigest()[:16]}"


def has_code() -> bool:
    """Return whether some compiled code of the scheduler is on disk."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR", ""))
    return folder.is_dir() and any(folder.glob("kernel_*/*.nbi"))


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
