"""Lists as people and scripts read them: columns that fit the terminal, names, CSV, JSON."""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from interlane.cli.output import OutputFormat, bare, emit, grid, painted

CUT: Final = "..."
LEAST: Final = 12
"""Characters to which the last column is cut at most."""

CLEAR: Final = "\x1b[2J\x1b[H"


class ListFormat(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"


ListOption = Annotated[
    ListFormat,
    typer.Option(
        "-o",
        "--output",
        help="How to print: wide has more columns and cuts nothing, name is for scripts.",
    ),
]
NoHeadersOption = Annotated[
    bool, typer.Option("--no-headers", help="Leave the line with the columns' names out.")
]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of a list."""

    head: str
    cell: Callable[[Row], str]
    value: Callable[[Row], object]
    """What a script gets: a number, or text."""
    is_wide: bool = False
    """Whether only wide lists have it."""
    is_right: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A list, and how it may be printed."""

    key: str
    """What the list is called in JSON."""
    columns: Sequence[ListColumn]
    rows: Sequence[Row]
    nothing: str
    """What is said of an empty list."""
    name: str = "id"

    def show(self, output: ListFormat, *, no_headers: bool = False) -> None:
        """Print the list."""
        match output:
            case ListFormat.JSON | ListFormat.YAML:
                emit({self.key: list(self.rows)}, OutputFormat(output.value))
            case ListFormat.NAME:
                if self.rows:
                    emit({}, OutputFormat.TABLE, "\n".join(row[self.name] for row in self.rows))
            case ListFormat.CSV:
                emit({}, OutputFormat.TABLE, self._csv(no_headers=no_headers))
            case _:
                is_wide = output is ListFormat.WIDE
                emit({}, OutputFormat.TABLE, self.table(is_wide, no_headers=no_headers))

    def table(self, is_wide: bool, *, no_headers: bool = False) -> str:  # noqa: FBT001 - how it is
        """Return the list as people read it; what does not fit the terminal is cut."""
        if not self.rows:
            return self.nothing
        shown = [one for one in self.columns if is_wide or not one.is_wide]
        cells = [[one.cell(row) for one in shown] for row in self.rows]
        head = [one.head for one in shown]
        right = {at for at, one in enumerate(shown) if one.is_right}
        lines = grid(head, cells, right=right).splitlines()
        width = None if is_wide else _width()
        cut = [line if width is None else _cut(line, width) for line in lines]
        return "\n".join(cut[1:] if no_headers else cut)

    def _csv(self, *, no_headers: bool) -> str:
        import csv
        from io import StringIO

        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not no_headers:
            writer.writerow(one.head for one in self.columns)
        for row in self.rows:
            writer.writerow(
                "" if (said := one.value(row)) is None else said for one in self.columns
            )
        return text.getvalue().rstrip("\n")


def _width() -> int | None:
    """Return how wide the terminal is; None where nobody reads one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _cut(line: str, width: int) -> str:
    """Return a line that fits; colours stay, because they stand at its beginning."""
    hidden = len(line) - len(bare(line))
    return line if len(line) - hidden <= width else line[: width + hidden - len(CUT)] + CUT


STATE_COLOURS: Final = {
    "running": "32",
    "growing": "32",
    "starting": "36",
    "stopping": "36",
    "queued": "33",
    "held": "35",
    "unknown": "31",
    "failed": "31",
    "refused": "31",
    "succeeded": "2",
    "cancelled": "2",
}


def state_told(state: str) -> str:
    """Return a state, coloured where that can be seen and is wanted."""
    return painted(state, STATE_COLOURS.get(state))
