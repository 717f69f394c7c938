"""Read one of the large tables, and count what cannot be read.

The instance table has 7.5 million rows of 250 bytes, so the text is streamed and only what
figures need is kept: names become 64-bit hashes, numbers floats.

There are two ways through a table.  Most tables are sound, and the CSV reader of polars takes
them fast; it stops at the first oddity or shows it.  Then the table is read again line by
line, which takes three times as long and tells each kind of damage apart: a row with too few
or too many fields, or with a word where a number belongs, is left out of the figures and
counted with its reason and the first line at which it happened.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from interlane.model import InvalidFile
from interlane.traces.read.source import unpacked
from interlane.traces.report.quality import QualityFinding

HASH_SEED: Final = 20220404
"""Names are compared by this hash in all tables."""

BLOCK: Final = 1 << 22
COMMA: Final = ord(",")

MOST: Final = 1e15
"""Numbers beyond this are taken for damage; bytes received in a life are far below."""

_BARE: Final = '" \t\r'
"""What may surround a name: some writers quote empty fields."""

_RAGGED, _GARBLED, _NO_NUMBER = 1, 2, 3
"""What is wrong with a row; from the last on, with the number in that column."""

_NO_TEXT: Final = "\ufffd"
"""What stands where the file has bytes that are no text."""


class ColumnKind(Enum):
    """What a column becomes."""

    KEY = pl.UInt64()
    """A name that is only compared: its hash."""
    NUMBER = pl.Float64()
    WORD = pl.String()
    """A name that is shown."""


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """The readable rows of a table."""

    frame: pl.DataFrame
    has: frozenset[str]
    """Columns that the file has."""
    findings: tuple[QualityFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns a file has, and what is wanted of them."""

    names: Sequence[str]
    has_header: bool
    take: Mapping[str, ColumnKind]
    joint: Mapping[str, tuple[str, ...]]
    """Keys that are made of several columns."""

    @property
    def wanted(self) -> frozenset[str]:
        """Columns that are looked at."""
        return frozenset(self.take).union(*self.joint.values())


def key_of(*columns: pl.Expr) -> pl.Expr:
    """Return the hash of a name, or of several names together; no name has no hash."""
    bare = [column.str.strip_chars(_BARE) for column in columns]
    text = bare[0] if len(bare) == 1 else pl.concat_str(bare, separator="\x1f")
    return pl.when(bare[0] != "").then(text.hash(HASH_SEED))


def load(
    path: Path,
    columns: Sequence[str],
    take: Mapping[str, ColumnKind],
    joint: Mapping[str, tuple[str, ...]] | None = None,
) -> LoadedRows:
    """Read what a table has of the wanted columns.

    ``joint`` names keys that are made of several columns.  A column that the file lacks
    comes out empty.
    """
    with unpacked(path) as plain:
        layout = Layout(*_names(plain, path, columns), take, joint or {})
        frame = _sound(plain, layout)
        if frame is not None:
            return _judged(path.name.split(".")[0], frame, layout)
        try:
            frame = _cut(plain, layout).collect(engine="streaming")
        except pl.exceptions.PolarsError as error:
            if "utf8" not in str(error):
                raise InvalidFile(
                    str(path), f"the table cannot be read ({_first(error)}); fetch it again."
                ) from None
            with _mended(plain) as text:
                frame = _cut(text, layout).collect(engine="streaming")
    return _judged(path.name.split(".")[0], frame, layout)


def _first(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _names(plain: Path, path: Path, columns: Sequence[str]) -> tuple[list[str], bool]:
    """Return the file's columns, and whether its first line is a header.

    The published tables have no header line; its names lie in a file of their own.
    """
    with plain.open("rb") as file:
        first = file.readline(1 << 16).decode("utf-8-sig", "replace")
    fields = [field.strip().strip('"') for field in first.split(",")]
    if first.strip() and set(fields) <= set(columns):
        return fields, True
    beside = path.with_name(path.name.split(".")[0] + ".header")
    if beside.is_file():
        text = beside.read_text("utf-8-sig", "replace")
        named = [field.strip() for field in text.split(",")]
        if set(named) <= set(columns):
            return named, False
    return list(columns), False


# -- the fast way ---------------------------------------------------------------------


def _sound(path: Path, layout: Layout) -> pl.DataFrame | None:
    """Return the rows of a table with which nothing is wrong, or None of any other.

    Words among numbers raise.  Fields that are missing come out empty, and so the last one
    is looked at; fields that are too many show in the number of commas.
    """
    kinds: dict[str, pl.DataType] = {
        name: pl.Float64() if layout.take.get(name) is ColumnKind.NUMBER else pl.String()
        for name in layout.names
    }
    last = layout.names[-1]
    try:
        frame = (
            pl.scan_csv(
                path,
                has_header=False,
                skip_rows=int(layout.has_header),
                schema=kinds,
                quote_char=None,
            )
            .select(
                *_wanted(layout, {name: _column(layout, name) for name in layout.wanted}),
                pl.col(last).is_null().alias("open"),
            )
            .collect(engine="streaming")
        )
    except pl.exceptions.PolarsError:
        return None
    numbers = [name for name, kind in layout.take.items() if kind is ColumnKind.NUMBER]
    strange = frame.select((~_believable(pl.col(name))).any() for name in numbers)
    if numbers and any(strange.row(0)):
        return None
    rows = frame.height + layout.has_header
    if frame["open"].any():
        is_whole = _whole_lines(path, layout, rows)
    else:
        is_whole = _commas(path) == rows * (len(layout.names) - 1)
    if not is_whole:
        return None
    return frame.drop("open")


def _column(layout: Layout, name: str) -> pl.Expr:
    return pl.col(name) if name in layout.names else pl.lit(None, pl.String)


def _whole_lines(path: Path, layout: Layout, rows: int) -> bool:
    """Tell whether every line has all its fields and is one row."""
    text = pl.col("text")
    commas = text.str.count_matches(",", literal=True)
    lines = pl.scan_lines(path, name="text").filter(text.str.strip_chars() != "")
    whole = (commas == len(layout.names) - 1).sum()
    try:
        counts = lines.select(whole.alias("whole"), pl.len()).collect(engine="streaming")
    except pl.exceptions.PolarsError:
        return False
    return counts.row(0) == (rows, rows)


def _commas(path: Path) -> int:
    """Count the commas of a file, much faster than line by line."""
    count = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            count += int(np.count_nonzero(np.frombuffer(block, np.uint8) == COMMA))
    return count


def _wanted(layout: Layout, fields: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    """Return the wanted columns of raw fields, those of numbers as they are."""
    return [
        *(_value(fields[name], kind).alias(name) for name, kind in layout.take.items()),
        *(
            key_of(*(fields[part] for part in parts)).alias(name)
            for name, parts in layout.joint.items()
        ),
    ]


def _value(field: pl.Expr, kind: ColumnKind) -> pl.Expr:
    if kind is ColumnKind.KEY:
        return key_of(field)
    if kind is ColumnKind.WORD:
        word = field.str.strip_chars(_BARE)
        return pl.when(word != "").then(word)
    return field.cast(pl.Float64)


# -- the slow way ---------------------------------------------------------------------


def _cut(path: Path, layout: Layout) -> pl.LazyFrame:
    """Cut lines into fields, with their ``line`` and their ``fault``, 0 for none."""
    names = layout.names
    lines = pl.scan_lines(path, name="text", row_index_name="line", row_index_offset=1)
    if layout.has_header:
        lines = lines.slice(1)
    text = pl.col("text").str.replace_all('"', "", literal=True)
    part = pl.col("f").struct
    raw = {
        name: (
            part.field(f"field_{names.index(name)}").str.strip_chars()
            if name in names
            else pl.lit(None, pl.String)
        )
        for name in layout.wanted
    }
    ragged = (
        part.field(f"field_{len(names) - 1}").is_null()
        | part.field(f"field_{len(names)}").is_not_null()
    )
    numbers = [name for name, kind in layout.take.items() if kind is ColumnKind.NUMBER]
    return (
        lines.filter(pl.col("text").str.strip_chars() != "")
        .select(
            pl.col("line").cast(pl.UInt32),
            text.str.contains(_NO_TEXT, literal=True).alias("garbled"),
            text.str.split_exact(",", len(names)).alias("f"),
        )
        .select("line", "garbled", ragged.alias("ragged"), **raw)
        .with_columns(_number(name).alias(f"{name}#") for name in numbers)
        .with_columns(_fault(layout, numbers).alias("fault"))
        .with_columns(pl.col(f"{name}#").alias(name) for name in numbers)
        .select("line", "fault", *_wanted(layout, {name: pl.col(name) for name in raw}))
    )


def _number(name: str) -> pl.Expr:
    number = pl.col(name).cast(pl.Float64, strict=False)
    return pl.when(_believable(number)).then(number)


def _believable(number: pl.Expr) -> pl.Expr:
    return number.is_finite() & (number.abs() <= MOST)


def _fault(layout: Layout, numbers: Sequence[str]) -> pl.Expr:
    fault = pl.when("ragged").then(_RAGGED).when("garbled").then(_GARBLED)
    for place, name in enumerate(layout.take):
        if name in numbers:
            wrong = (pl.col(name) != "") & pl.col(f"{name}#").is_null()
            fault = fault.when(wrong).then(place + _NO_NUMBER)
    return fault.otherwise(0).cast(pl.UInt8)


def _judged(file: str, frame: pl.DataFrame, layout: Layout) -> LoadedRows:
    findings: list[QualityFinding] = []
    rows = frame.height
    if "fault" in frame.columns:
        findings += _damage(file, frame, layout)
        frame = frame.filter(pl.col("fault") == 0).drop("fault", "line")
    findings += [
        QualityFinding(file, f"column {name} is not in the file", rows, rows)
        for name in layout.take
        if name not in layout.names
    ]
    return LoadedRows(frame, frozenset(layout.names), tuple(findings))


def _damage(file: str, frame: pl.DataFrame, layout: Layout) -> list[QualityFinding]:
    wrong = (
        frame.filter(pl.col("fault") > 0)
        .group_by("fault")
        .agg(pl.len(), pl.col("line").min())
        .sort("fault")
    )
    return [
        QualityFinding(file, _wording(fault, layout), rows, frame.height, f"line {line}")
        for fault, rows, line in wrong.iter_rows()
    ]


def _wording(fault: int, layout: Layout) -> str:
    if fault == _RAGGED:
        return f"damaged: the row does not have {len(layout.names)} fields"
    if fault == _GARBLED:
        return "damaged: the row has bytes that are not UTF-8 text"
    return (
        f"damaged: {list(layout.take)[fault - _NO_NUMBER]} is not a number, or a senseless one"
    )


# -- files ----------------------------------------------------------------------------


@contextmanager
def _mended(path: Path) -> Iterator[Path]:
    """Give a copy in which bytes that are no UTF-8 are marked."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with path.open("rb") as file, copy.open("wb") as out:
            rest = b""
            while block := file.read(BLOCK):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                out.write((whole + newline).decode("utf-8", "replace").encode())
            out.write(rest.decode("utf-8", "replace").encode())
        yield copy
