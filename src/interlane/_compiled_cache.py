"""Where compiled code is kept between runs.

numba looks at the file of a compiled function to see whether its saved machine code is still
good, but not at the files of the functions inlined into it.  So the code is kept in a folder
named after the sources of all compiled modules: other sources, other folder.
"""

import os
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


def use_own_cache() -> None:
    """Tell numba where to keep compiled code, unless the user has."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    package = Path(__file__).parent
    sources = sha256()
    for module in COMPILED_MODULES:
        sources.update((package / module).read_bytes())
    for base in (package / "__pycache__", Path.home() / ".cache" / "interlane"):
        folder = base / f"numba-{sources.hexdigest()[:16]}"
        if _can_write(folder):
            os.environ["NUMBA_CACHE_DIR"] = str(folder)
            return


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
