"""Rows of a CSV file, whose fields are taken with their types checked and their line named."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from interlane.model import InvalidFile


class TableRow:
    """One row of a file."""

    def __init__(self, file: str, line: int, fields: dict[str, str]) -> None:
        self._file = file
        self._line = line
        self._fields = fields

    def text(self, column: str) -> str:
        """Return a field that must not be empty."""
        value = self._fields[column].strip()
        if not value:
            raise self.wrong(
                column, value, "it must not be empty; fill the hole or drop the row"
            )
        return value

    def optional(self, column: str) -> str:
        """Return a field of a column that a file may do without."""
        return self._fields.get(column, "").strip()

    def number(self, column: str) -> float:
        """Return a field as a number."""
        value = self.text(column)
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not isfinite(number):
            raise self.wrong(column, value, "it must be a number")
        return number

    def whole(self, column: str) -> int:
        """Return a field as a whole number."""
        number = self.number(column)
        if number != int(number):
            raise self.wrong(column, self._fields[column], "it must be a whole number")
        return int(number)

    def wrong(self, column: str, value: str, rule: str) -> InvalidFile:
        """Return the error for a field that breaks a rule."""
        return InvalidFile(self._file, f"{column} is {value!r}, but {rule}.", self._line)

    def reworded(self, error: Exception) -> InvalidFile:
        """Return an error about this row as one that names its line."""
        return InvalidFile(self._file, str(error), self._line)


def rows_of(lines: Iterable[str], name: str, columns: Sequence[str]) -> Iterator[TableRow]:
    """Yield the rows of a file that must have some columns."""
    reader = csv.reader(lines)
    header = [column.strip() for column in next(reader, [])]
    for column in columns:
        if column not in header:
            raise InvalidFile(name, f"the column {column} is missing; add it.", 1)
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise InvalidFile(
                name,
                f"the row has {len(cells)} fields, the header {len(header)}; mend the row.",
                reader.line_num,
            )
        yield TableRow(name, reader.line_num, dict(zip(header, cells, strict=True)))
