"""How jobs and functions get on beside each other, as a table."""

from collections.abc import Sequence
from typing import Any

from interlane.cli.output import grid


def beside_told(who: str, compared: Sequence[dict[str, Any]]) -> list[str]:
    """Return what was measured, a row for every device; nothing if nothing was."""
    head = (f"beside {who}", "device", "slowdown", "mean", "predicted", "limit")
    rows = [
        (
            ", ".join(one["beside"]),
            one["device"],
            *(f"{one[name]:.2f}" for name in ("measured", "mean", "predicted", "limit")),
        )
        for one in compared
    ]
    return [grid(head, rows, left=2)] if rows else []
