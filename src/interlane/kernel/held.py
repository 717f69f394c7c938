"""What running jobs hold, all in one table, so that compiled code may look at any of them.

Every job has a stretch of placement rows.  One that ends leaves its stretch behind; when the
table is full, what is left behind is squeezed out, or the table doubles.
"""

import numpy as np

from interlane.tables import AT_WIDTH, Table


class RunningRows:
    """Placement rows by the slots of running jobs, which are dense: 0 to a count."""

    __slots__ = ("_count", "_end", "_first", "_rows")

    def __init__(self, size: int) -> None:
        self._rows: Table = np.zeros((2 * size, AT_WIDTH), np.int64)
        self._first: Table = np.zeros(size, np.int64)
        self._count: Table = np.zeros(size, np.int64)
        self._end = 0
        """The row after the last stretch."""

    @property
    def tables(self) -> tuple[Table, Table, Table]:
        """Return the rows, and the first row and number of rows of each slot."""
        return self._rows, self._first, self._count

    def put(self, slot: int, table: Table, slots: int) -> None:
        """Say what the job in a slot holds now; so many slots are taken, this one included."""
        if slot >= len(self._first):
            self._first = np.concatenate([self._first, np.zeros_like(self._first)])
            self._count = np.concatenate([self._count, np.zeros_like(self._count)])
        self._count[slot] = 0
        size = len(table)
        if self._end + size > len(self._rows):
            self._make_way(size, slots)
        self._rows[self._end : self._end + size] = table
        self._first[slot] = self._end
        self._count[slot] = size
        self._end += size

    def move(self, source: int, target: int) -> None:
        """Give the stretch of one slot to another."""
        self._first[target] = self._first[source]
        self._count[target] = self._count[source]

    def _make_way(self, size: int, slots: int) -> None:
        """Squeeze out what jobs left behind; then at least half of the table is free."""
        count = self._count[:slots]
        total = int(count.sum())
        begin = np.cumsum(count) - count
        kept = self._rows[np.repeat(self._first[:slots] - begin, count) + np.arange(total)]
        height = len(self._rows)
        while height < 2 * (total + size):
            height *= 2
        self._rows = np.zeros((height, AT_WIDTH), np.int64)
        self._rows[:total] = kept
        self._first[:slots] = begin
        self._end = total
