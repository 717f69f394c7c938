"""Our own CSV: one row per measurement.

Columns, in any order: ``model`` (the neural network), ``gpu`` (GPU model, as ``mig profiles``
names it), ``profile``, ``batch``, ``processes`` (copies sharing the instance),
``throughput_per_s`` (of all of them) and ``latency_ms``.  What did not run, for want of
memory, is left out.  A column ``source`` may say ``interpolated`` of rows that nobody measured.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from interlane.mig.table import Measurement, PerformanceTable
from interlane.mig.tables.rows import TableRow, rows_of
from interlane.model import InvalidFile, InvalidInput

COLUMNS: Final = (
    "model",
    "gpu",
    "profile",
    "batch",
    "processes",
    "throughput_per_s",
    "latency_ms",
)

SOURCE: Final = "source"
MEASURED, INTERPOLATED = "measured", "interpolated"


def read(lines: Iterable[str], name: str) -> PerformanceTable:
    """Read a table."""
    measured = [_measurement(row) for row in rows_of(lines, name, COLUMNS)]
    if not measured:
        raise InvalidFile(name, "the table has no rows; it needs at least one measurement.")
    try:
        return PerformanceTable(measured, name)
    except InvalidInput as error:
        raise InvalidFile(name, str(error)) from None


def _measurement(row: TableRow) -> Measurement:
    try:
        return Measurement(
            row.text("model"),
            row.text("gpu"),
            row.text("profile"),
            row.whole("batch"),
            row.whole("processes"),
            row.number("throughput_per_s"),
            row.number("latency_ms"),
            row.optional(SOURCE) == INTERPOLATED,
        )
    except InvalidFile:
        raise
    except InvalidInput as error:
        raise row.reworded(error) from None


def write(table: PerformanceTable) -> Iterator[str]:
    """Yield the lines of a table."""
    listed = list(table)
    says_source = any(row.interpolated for row in listed)
    yield ",".join((*COLUMNS, SOURCE) if says_source else COLUMNS)
    for row in listed:
        line = (
            f"{row.model},{row.gpu},{row.profile},{row.batch},{row.processes},"
            f"{row.throughput_per_s:g},{row.latency_ms:g}"
        )
        source = INTERPOLATED if row.interpolated else MEASURED
        yield f"{line},{source}" if says_source else line
