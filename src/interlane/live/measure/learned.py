"""What was learned of functions and pairs, in files of the server's folder.

One file for each function and one for what they share.  A file is written beside and put in
place at once, so that a server that dies at any moment leaves the one before.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

SUFFIX: Final = ".npz"
SHARED: Final = "_shared"
"""The file of what functions have in common; no function has such a name."""

log = logging.getLogger("interlane.live")


class LearnedFiles:
    """Arrays by name of function, and under '' what all share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Return all that is kept; what is damaged is left out, and begins anew."""
        found = {}
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            name = "" if path.stem == SHARED else path.stem
            try:
                with path.open("rb") as file:
                    kept = np.load(file, allow_pickle=False)
                    if not isinstance(kept, Mapping):
                        raise ValueError("it is one array")
                    found[name] = dict(kept)
            except (OSError, ValueError, EOFError, BadZipFile) as error:
                log.warning("%s cannot be read and begins anew: %s", path, error)
        return found

    def write(self, learned: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        """Keep these; a disk that is full costs what was learned, never a call."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name, arrays in learned.items():
                path = self._path(name)
                beside = path.with_suffix(".new")
                with beside.open("wb") as file:
                    np.savez_compressed(file, allow_pickle=False, **arrays)
                beside.replace(path)
        except OSError as error:
            log.warning("What was learned of functions cannot be kept: %s", error)

    def drop(self, name: str) -> None:
        """Forget a function."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name or SHARED}{SUFFIX}"
