"""Performance tables: our own CSV, published measurements, and synthetic ones.

Every reader takes the lines of a file and its name, and opens nothing itself.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from interlane.mig.table import PerformanceTable
from interlane.mig.tables import migperf, own, parvagpu
from interlane.model import InvalidFile

Reader = Callable[[Iterable[str], str], PerformanceTable]

FORMATS: Final[Mapping[str, Reader]] = MappingProxyType(
    {"interlane": own.read, "parvagpu": parvagpu.read, "migperf": migperf.read}
)
"""Format -> its reader."""

_COLUMNS: Final = {
    "interlane": own.COLUMNS,
    "parvagpu": parvagpu.COLUMNS,
    "migperf": migperf.COLUMNS,
}


def read_table(lines: Iterable[str], name: str) -> PerformanceTable:
    """Read a table of any known format, told from its header."""
    listed = list(lines)
    header = {column.strip() for column in listed[0].split(",")} if listed else set()
    for fmt, columns in _COLUMNS.items():
        if header.issuperset(columns):
            return FORMATS[fmt](listed, name)
    raise InvalidFile(
        name,
        f"this is no performance table; its first line must name {','.join(own.COLUMNS)}.",
        1,
    )
