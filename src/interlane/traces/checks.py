"""Check rows column by column, and remember for each bad one its line and the reason.

Checks are vectorised: a mask over all rows, and a sentence only for the rows that fail.  A
row that failed one check is not reported by a later one.  Nothing is raised before
``settle``, so that the first bad row *of the file* is the one that the user reads about.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from interlane.model import MILLI, InvalidFile, InvalidInput
from interlane.model.gpu import GPU_MEMORY_MIB, NO_GPU
from interlane.traces.schema import BadRow, pairs_in

KEPT: Final = 1000
"""Bad rows that are remembered one by one; the others are only counted."""

MOST: Final = 10**12
"""Quantities above this are taken for mistakes."""

MOST_GPUS: Final = 10**6
"""GPUs or instances above this are taken for mistakes; their product must fit a word."""

REMEDY: Final = "mend the row or leave such rows out with --skip-bad"

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RawTable:
    """Rows as a file gives them, before anybody has judged them."""

    file: str
    frame: pl.DataFrame
    numbers: pl.Series
    """Where each row is in the file, counted from 1."""
    unit: str = "line"
    """What ``numbers`` counts: lines of a text, rows of a Parquet file, entries of a list."""
    broken: tuple[tuple[int, str], ...] = ()
    """Rows that are no rows at all: their number and what is wrong."""
    broken_count: int = 0


@dataclass(frozen=True)
class Bad:
    """The rows of one or several tables that cannot be used."""

    rows: tuple[BadRow, ...] = ()
    count: int = 0

    def __add__(self, other: "Bad") -> "Bad":
        return Bad((self.rows + other.rows)[:KEPT], self.count + other.count)


class Rows:
    """The rows of one table while they are being checked."""

    def __init__(self, table: RawTable) -> None:
        self.table = table
        self.height = table.frame.height
        # One flag per row, and the sentence for the first of them.
        self._is_bad: Mask = np.zeros(self.height, dtype=np.bool_)
        self._why: dict[int, str] = {}

    @cached_property
    def columns(self) -> frozenset[str]:
        """Columns of the table."""
        return frozenset(self.table.frame.columns)

    def require(self, columns: Iterable[str]) -> None:
        """Refuse the file when it lacks one of these columns."""
        for column in columns:
            if column not in self.columns:
                raise InvalidFile(
                    self.table.file,
                    f"the header has no column {column!r}; add it or name another --format.",
                )

    def flag(self, mask: Mask, what: Callable[[int], str]) -> None:
        """Mark the rows of the mask as bad; ``what`` says why, for a row."""
        new = mask & ~self._is_bad
        self._is_bad |= new
        for row in np.flatnonzero(new)[:KEPT].tolist():
            self._why[row] = what(row)

    def flag_value(self, mask: Mask, column: str, rule: str) -> None:
        """Mark rows whose value in this column breaks a rule."""
        self.flag(mask, lambda row: f"{column} is {self.raw(column, row)}, but {rule}")

    def raw(self, column: str, row: int) -> str:
        """Return a value as the file has it."""
        value = self.table.frame[column][row]
        return "missing" if value is None else repr(value)

    def text(self, column: str, *, missing: str | None = "") -> pl.Series:
        """Return a column as text; an empty field is ``missing``, or bad when that is None."""
        if column not in self.columns:
            return pl.Series(column, [missing or ""], pl.String).new_from_index(0, self.height)
        given = self.table.frame[column].cast(pl.String).str.strip_chars()
        if missing is None:
            empty = (given.is_null() | (given == "")).to_numpy()
            self.flag(empty, lambda row: f"{column} is empty, but every row needs one")
        return given.fill_null(missing or "")

    def number(
        self,
        column: str,
        *,
        missing: float | None = None,
        least: float = 0,
        most: float = MOST,
        above: float | None = None,
    ) -> pl.Series:
        """Return a column as finite numbers within bounds.

        An empty field is ``missing``, or bad when that is None.
        """
        if column not in self.columns:
            value = float("nan") if missing is None else missing
            return pl.Series(column, [value], pl.Float64).new_from_index(0, self.height)
        empty, numbers = self._numbers(column)
        if missing is None:
            self.flag(empty, lambda row: f"{column} is missing, but every row needs one")
        else:
            numbers = np.where(empty, missing, numbers)
        self.flag_value(~np.isfinite(numbers), column, "it must be a finite number")
        if above is not None:
            self.flag_value(numbers <= above, column, f"it must be above {above:g}")
        self.flag_value(numbers < least, column, f"it must be {least:g} or more")
        self.flag_value(numbers > most, column, f"it must be at most {most:,.0f}")
        return pl.Series(column, numbers)

    def optional(self, column: str) -> pl.Series:
        """Return a column of numbers, 0 or more, in which empty fields stay empty."""
        empty, _ = self._numbers(column)
        numbers = self.number(column, missing=0.0)
        return pl.select(pl.when(~pl.Series(empty)).then(numbers).alias(column)).to_series()

    def whole(
        self,
        column: str,
        *,
        missing: int | None = None,
        least: int = 0,
        most: int = MOST,
    ) -> pl.Series:
        """Return a column as whole numbers within bounds; ``8.0`` is one, ``8.5`` is not."""
        numbers = self.number(column, missing=missing, least=least, most=most).to_numpy()
        with np.errstate(invalid="ignore"):
            self.flag_value(numbers != np.floor(numbers), column, "it must be a whole number")
        return self._whole(column, numbers)

    def rounded(
        self, column: str, *, times: float, missing: float | None = None, most: float = MOST
    ) -> pl.Series:
        """Return ``times`` the column, rounded half to even as Python's ``round`` does."""
        numbers = self.number(column, missing=missing, most=most).to_numpy()
        return self._whole(column, np.rint(numbers * times))

    def gpu_types(self, column: str, known: frozenset[str]) -> pl.Series:
        """Return a column of GPU types, each once and sorted; ``CPU`` and empty mean any."""
        given = self.text(column)
        spelt = given.unique().to_list()
        tidy = {names: _tidy(names) for names in spelt}
        strange = [names for names, types in tidy.items() if not known.issuperset(types)]
        self.flag_value(
            given.is_in(strange).to_numpy(),
            column,
            f"known GPU types are {', '.join(sorted(known))}",
        )
        return given.replace({names: "|".join(types) for names, types in tidy.items()})

    def pairs(
        self,
        column: str,
        check: Callable[[str], object] = pairs_in,
        rule: str = "it must read like zone=a|disk=ssd",
    ) -> pl.Series:
        """Return a column of ``key=value|key=value``, sorted; ``check`` raises for bad ones."""
        given = self.text(column)
        tidy: dict[str, str] = {}
        for text in given.unique().to_list():
            try:
                check(text)
                tidy[text] = "|".join(f"{key}={value}" for key, value in pairs_in(text))
            except InvalidInput:
                self.flag_value((given == text).to_numpy(), column, rule)
        return given.replace(tidy)

    def moments(self, column: str) -> pl.Series:
        """Return a column of dates and times as seconds from an arbitrary zero."""
        given = self.text(column, missing=None)
        parsed = given.str.replace("T", " ", literal=True).str.to_datetime(
            "%Y-%m-%d %H:%M:%S", time_unit="ms", strict=False
        )
        self.flag_value(
            parsed.is_null().to_numpy(), column, "it must be a time like 2020-04-01 12:00:00"
        )
        return parsed.cast(pl.Int64).cast(pl.Float64) / 1000

    def each_once(self, *columns: str) -> None:
        """Mark rows that repeat what an earlier row has in these columns."""
        given = self.table.frame.select(columns)
        again = ~given.to_struct("key").is_first_distinct()
        self.flag(
            again.to_numpy(),
            lambda row: (
                f"{' and '.join(f'{name} {self.raw(name, row)}' for name in columns)} "
                f"came before, but each may come once"
            ),
        )

    def spread(self, job_ids: pl.Series) -> None:
        """Mark every row of a job of which one row is bad: half a job is another job."""
        if not self._is_bad.any():
            return
        spoilt = job_ids.filter(pl.Series(self._is_bad)).unique()
        self.flag(
            job_ids.is_in(spoilt.implode()).to_numpy(),
            lambda row: f"another row of job {job_ids[row]!r} is bad",
        )

    def settle(self, *, skip_bad: bool) -> tuple[pl.Series, Bad]:
        """Return which rows are good, and the bad ones; raise for the first unless skipped."""
        bad = self._bad()
        if bad.rows and not skip_bad:
            raise self._refusal(bad.rows[0])
        return pl.Series(~self._is_bad), bad

    def _bad(self) -> Bad:
        numbers = self.table.numbers
        found = [(int(numbers[row]), what) for row, what in self._why.items()]
        listed = sorted([*found, *self.table.broken])[:KEPT]
        rows = tuple(BadRow(self.table.file, line, what) for line, what in listed)
        return Bad(rows, int(self._is_bad.sum()) + self.table.broken_count)

    def _refusal(self, row: BadRow) -> InvalidFile:
        what = f"{row.what}; {REMEDY}."
        if self.table.unit == "line":
            return InvalidFile(row.file, what, row.line)
        return InvalidFile(row.file, f"{self.table.unit} {row.line}: {what}")

    def _numbers(self, column: str) -> tuple[Mask, NDArray[np.float64]]:
        given = self.table.frame[column]
        if given.dtype == pl.String:
            given = given.str.strip_chars()
            empty = given.is_null() | (given == "")
        else:
            empty = given.is_null()
        numbers = given.cast(pl.Float64, strict=False).fill_null(float("nan"))
        return empty.to_numpy(), numbers.to_numpy()

    def _whole(self, column: str, numbers: NDArray[np.float64]) -> pl.Series:
        # Bad rows go before anyone looks at them, so that any value will do for them.
        usable = np.where(self._is_bad, 0.0, numbers)
        return pl.Series(column, usable.astype(np.int64))


def first_of(moments_s: pl.Series) -> float:
    """Return the first of these times, 0 when none is known."""
    first = moments_s.drop_nans().min()
    return float(first) if isinstance(first, int | float) else 0.0


def waits(waited_s: pl.Series) -> pl.Series:
    """Return recorded waits; one below zero is a clock's fault, and nobody knows the truth."""
    known = waited_s.fill_nan(None)
    return known.set(known < 0, None).alias("waited_s")


def known_gpu_types(extra: frozenset[str]) -> frozenset[str]:
    """Return the GPU types that a trace may name."""
    return frozenset(GPU_MEMORY_MIB) | extra


def cards(total_milli: int, pods: int = 1) -> tuple[int, int]:
    """Split a total GPU amount exactly into (GPUs, thousandths of each).

    Whole GPUs where the total is whole, else a share per pod where the pods divide it, else
    the fewest GPUs that give equal shares: 2,500 is 5 x 500 for five pods, else 4 x 625.
    """
    if total_milli <= MILLI:
        return (1, total_milli) if total_milli else (0, MILLI)
    if total_milli % MILLI and pods > 0 and total_milli % pods == 0:
        share = total_milli // pods
        if share <= MILLI:
            return pods, share
    share = next(part for part in range(MILLI, 0, -1) if total_milli % part == 0)
    return total_milli // share, share


def split_cards(total_milli: pl.Series, pods: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Split a column of totals into columns of GPUs and of thousandths, by ``cards``."""
    asked = pl.DataFrame({"total": total_milli, "pods": pods})
    distinct = asked.unique()
    split = [cards(total, pods) for total, pods in distinct.iter_rows()]
    distinct = distinct.with_columns(
        pl.Series("gpus", [gpus for gpus, _ in split], pl.Int64),
        pl.Series("gpu_milli", [share for _, share in split], pl.Int64),
    )
    joined = asked.join(distinct, on=["total", "pods"], how="left", maintain_order="left")
    return joined["gpus"], joined["gpu_milli"]


def _tidy(names: str) -> list[str]:
    """Return the GPU types of ``A|B|A``: sorted, each once."""
    return sorted({name.strip() for name in names.split("|")} - {"", NO_GPU})
