"""Measured co-location: what workloads do alone, and what they keep beside others.

``read`` takes a folder and tells by its files whose measurements they are.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from interlane.model import InvalidFile
from interlane.traces.colocation import gavel, gpulet, lucid, own, tally
from interlane.traces.colocation.coruns import CoRuns
from interlane.traces.read.source import must_exist

SETS: Final[Mapping[str, tuple[str, Callable[[Path], CoRuns]]]] = MappingProxyType(
    {
        "own": (own.CORUNS, own.read),
        "lucid": (lucid.PAIRS, lucid.read),
        "gavel": (gavel.PAIRS, gavel.read),
        "tally": (tally.PAIRS, tally.read),
        "gpu-let": (gpulet.MARK, gpulet.read),
    }
)
"""Name -> the file by which a folder is told, and the reader."""

FOLDERS: Final = MappingProxyType(
    {
        "lucid": "lucid-colocation",
        "gavel": "gavel-throughputs",
        "tally": "tally-colocation",
        "gpu-let": "gpulet-profiles",
    }
)
"""Published sets and where the directory of traces has them."""


def read(folder: Path) -> CoRuns:
    """Read a folder of measured co-runs."""
    must_exist(folder)
    for mark, reader in SETS.values():
        if (folder / mark).exists():
            return reader(folder)
    marks = ", ".join(f"{mark} ({name})" for name, (mark, _) in SETS.items())
    raise InvalidFile(str(folder), f"the folder has none of {marks}; name another folder.")
