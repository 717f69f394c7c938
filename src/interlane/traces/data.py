"""Find the directory of published traces, which is never part of the project."""

import os
from pathlib import Path
from typing import Final

from interlane.model import InvalidFile

VARIABLE: Final = "INTERLANE_DATA"
"""Environment variable that names the directory."""

BESIDE: Final = Path("../shared/data")
"""Where the directory is looked for when nobody names it."""


def data_dir(explicit: Path | None) -> Path | None:
    """Return the directory of traces: the one named, else the variable's, else the one beside.

    A directory that was named must exist; the one beside is optional.
    """
    named = explicit or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named is None:
        return BESIDE.resolve() if BESIDE.is_dir() else None
    if not named.is_dir():
        raise InvalidFile(
            str(named), f"there is no such directory; name another with --data or {VARIABLE}."
        )
    return named
