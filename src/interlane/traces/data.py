"""Find the directory of published traces, which is never part of the project."""

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "INTERLANE_DATA"
"""Environment variable that names the directory."""

BESIDE: Final = Path("../shared/data")
"""Where the directory is looked for when nobody names it."""


def data_dir(explicit: Path | None) -> Path | None:
    """Return the directory of traces: the one named, else the variable's, else the one beside.

    A directory that was named is not looked into: who needs a file of it says what is missing.
    """
    if explicit is not None:
        return explicit
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    return BESIDE.resolve() if BESIDE.is_dir() else None
