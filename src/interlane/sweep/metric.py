"""What a program prints of its metric: ``loss=0.3``, ``loss: 0.3`` or ``{"loss": 0.3}``."""

import re
from math import isfinite
from typing import Final

REPORTS_MAX: Final = 10_000
"""Values that are kept of a run; if it prints more, the newest replaces the last of them."""
LINE_MAX: Final = 1 << 16
"""Bytes of a line that are looked at."""
_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)"
_ENDS: Final = re.compile(rb"[\r\n]")


class MetricReader:
    """Reads what a run prints, part by part; every line with the metric is one report."""

    def __init__(self, metric: str) -> None:
        # The whole word only: val_loss and val/loss are others.
        name = rf"(?<![\w./-]){re.escape(metric)}[\"']?(?:\s*[=:]\s*|\s+)"
        self._found = re.compile(rf"{name}[\"']?((?>{_NUMBER}))(?!\w)", re.IGNORECASE)
        self._rest = b""
        self.reports: list[float] = []

    def read(self, data: bytes, *, is_last: bool = False) -> None:
        """Take in what was printed next; ``is_last`` if nothing will follow."""
        *lines, rest = _ENDS.split(self._rest + data)
        if is_last:
            lines, rest = [*lines, rest], b""
        for line in lines:
            self._read_line(line[:LINE_MAX])
        self._rest = rest[:LINE_MAX]

    def _read_line(self, line: bytes) -> None:
        found = self._found.search(line.decode("utf-8", "replace"))
        if found is None:
            return
        if len(self.reports) == REPORTS_MAX:
            self.reports.pop()
        self.reports.append(float(found[1]))


def known(value: float | None) -> bool:
    """Tell whether a value can be compared: a loss that is no number is worse than any."""
    return value is not None and isfinite(value)
