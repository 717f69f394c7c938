"""Open a trace file and cut it into rows, each with its true line number.

Fields are cut here and not by a CSV library, because those either stop at a ragged row
without naming its line or fill it up in silence.
"""

import csv
import gzip
import io
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import polars as pl

from interlane.model import InvalidFile
from interlane.traces.checks import KEPT, RawTable

PARQUET: Final = (".parquet", ".pq")
"""Endings of Parquet files."""

_UNPACK_BYTES: Final = 1 << 22
"""Bytes of a gzip that are unpacked at a time."""


@dataclass(frozen=True)
class Options:
    """How a trace is read, whatever its format."""

    skip_bad: bool = False
    extra_gpu_types: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Source:
    """A trace file or a directory of tables; contents are read when first asked for."""

    path: Path

    @property
    def file(self) -> str:
        """The file as messages name it."""
        return str(self.path)

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.path.name.split(".")[0] or self.path.name

    @property
    def is_parquet(self) -> bool:
        """Whether this is a Parquet file."""
        return self.path.suffix in PARQUET

    @cached_property
    def text(self) -> str:
        """The contents as text."""
        contents = read_bytes(self.path)
        try:
            return contents.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = contents.count(b"\n", 0, error.start) + 1
            raise InvalidFile(
                self.file, "this is not UTF-8 text; convert the file to UTF-8.", line
            ) from None

    @cached_property
    def header(self) -> list[str]:
        """The fields of the first line that is not blank, or the columns of a Parquet file."""
        return self.table().frame.columns if self.is_parquet else self.header_by(",")

    def header_by(self, separator: str) -> list[str]:
        """Return the fields of the first line that is not blank, cut at a separator."""
        first = re.search(r"\S[^\n]*", self.text)
        if first is None:
            raise InvalidFile(self.file, "the file is empty; it needs a header and jobs.")
        return [name.strip().strip('"') for name in first[0].split(separator)]

    def plain_table(self, separator: str) -> RawTable:
        """Return the rows of a file with a header in which quotes mean nothing."""
        fields = self.header_by(separator)
        self._refuse_doubles(fields)
        lines, rows = _cut_plain(self.text, separator)
        return _table(self.file, lines[1:], rows[1:], fields)

    def table(self, columns: Sequence[str] | None = None) -> RawTable:
        """Return the rows, all fields as text.

        ``columns`` names the fields of a file that may come without a header.
        """
        if self.is_parquet:
            return read_parquet(self.path)
        names = self.header
        bare = columns is not None and list(columns) != names
        fields = list(columns) if columns is not None else names
        self._refuse_doubles(fields)
        return _cut(self.file, self.text, fields, has_header=not bare)

    def _refuse_doubles(self, fields: Sequence[str]) -> None:
        doubles = sorted({name for name in fields if list(fields).count(name) > 1})
        if doubles:
            raise InvalidFile(
                self.file, f"the header has column {doubles[0]!r} twice; rename one.", 1
            )


def must_exist(path: Path) -> None:
    """Refuse a path where there is nothing."""
    if not path.exists():
        raise InvalidFile(str(path), "there is no such file; check the path.")


def read_bytes(path: Path) -> bytes:
    """Return what is in the file, unpacked if it is a gzip."""
    must_exist(path)
    try:
        contents = path.read_bytes()
        return gzip.decompress(contents) if contents[:2] == b"\x1f\x8b" else contents
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise bad_gzip(path) from None
    except OSError as error:
        raise unreadable(path, error) from None


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give a plain file that can be streamed: the file itself, or its gzip unpacked."""
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        try:
            with gzip.open(path) as packed, plain.open("wb") as file:
                shutil.copyfileobj(packed, file, _UNPACK_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise bad_gzip(path) from None
        except OSError as error:
            raise unreadable(path, error) from None
        yield plain


def bad_gzip(path: Path) -> InvalidFile:
    """Return the refusal of a gzip that ends too early or is damaged."""
    return InvalidFile(
        str(path), "the gzip is cut short or damaged; fetch or pack the file again."
    )


def unreadable(path: Path, error: OSError) -> InvalidFile:
    """Return the refusal of a file that the system does not let us read or write."""
    why = (error.strerror or type(error).__name__).lower()
    return InvalidFile(str(path), f"{why}; check the path and its permissions.")


def read_parquet(path: Path) -> RawTable:
    """Return the rows of a Parquet file, fields with the types they have there."""
    must_exist(path)
    try:
        frame = pl.read_parquet(path)
    except OSError as error:
        raise unreadable(path, error) from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise InvalidFile(
            str(path), "this is not a whole Parquet file; fetch or write it again."
        ) from None
    numbers = pl.int_range(1, frame.height + 1, eager=True)
    return RawTable(str(path), frame, numbers, unit="row")


def _cut(file: str, text: str, fields: Sequence[str], *, has_header: bool) -> RawTable:
    if '"' in text:
        lines, rows = _cut_quoted(file, text)
    else:
        lines, rows = _cut_plain(text)
    if has_header:
        lines, rows = lines[1:], rows[1:]
    return _table(file, lines, rows, fields)


def _table(file: str, lines: pl.Series, rows: pl.Series, fields: Sequence[str]) -> RawTable:
    counts = rows.list.len()
    whole = counts == len(fields)
    ragged = pl.DataFrame({"line": lines, "count": counts}).filter(~whole)
    broken = tuple(
        (line, f"the row has {count} fields, but {len(fields)} are expected")
        for line, count in ragged.head(KEPT).iter_rows()
    )
    rows = rows.filter(whole)
    frame = pl.DataFrame({name: rows.list.get(i) for i, name in enumerate(fields)})
    numbers = lines.filter(whole)
    return RawTable(file, frame, numbers, broken=broken, broken_count=ragged.height)


def _cut_plain(text: str, separator: str = ",") -> tuple[pl.Series, pl.Series]:
    """Cut text without quotes; the fast way."""
    every = pl.DataFrame({"text": text.replace("\r\n", "\n").split("\n")})
    every = every.with_row_index("line", offset=1)
    every = every.filter(pl.col("text").str.strip_chars() != "")
    return every["line"].cast(pl.Int64), every["text"].str.split(separator)


def _cut_quoted(file: str, text: str) -> tuple[pl.Series, pl.Series]:
    """Cut text in which fields may be quoted, and quoted fields may hold line ends."""
    reader = csv.reader(io.StringIO(text))
    lines: list[int] = []
    rows: list[list[str]] = []
    start = 1
    try:
        for row in reader:
            if row:
                lines.append(start)
                rows.append(row)
            start = reader.line_num + 1
    except csv.Error as error:
        raise InvalidFile(
            file, f"the row cannot be cut into fields ({error}); close its quotes.", start
        ) from None
    return pl.Series(lines, dtype=pl.Int64), pl.Series(rows, dtype=pl.List(pl.String))
