"""What a run of an entry came to: as a document, and counted."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from interlane.model import InterlaneError
from interlane.reproduce.base import Basis, Kind, Reproduction, Row, Setting


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of an entry, and what they cost."""

    entry: Reproduction
    rows: Sequence[Row]
    seed: int
    choice: str | None
    cpu_s: float
    took_s: float
    error: str = ""
    """Why there are no rows."""

    @property
    def checked(self) -> int:
        """How many rows could fail."""
        return sum(row.kind is Kind.CHECKED for row in self.rows)

    @property
    def held(self) -> int:
        """How many of them hold."""
        return sum(row.kind is Kind.CHECKED and row.holds is True for row in self.rows)

    @property
    def fails(self) -> bool:
        """Whether anything decides against it."""
        return bool(self.error) or any(row.fails for row in self.rows)

    @property
    def verdict(self) -> str:
        """What it comes to, in a line."""
        if self.error:
            return f"Not run: {self.error}"
        others = {
            kind: sum(row.kind is kind for row in self.rows)
            for kind in (Kind.FIGURE, Kind.CALIBRATED)
        }
        also = [
            f"{count} {kind.value}{'s' if kind is Kind.FIGURE and count != 1 else ''}"
            for kind, count in others.items()
            if count
        ]
        beside = f"; beside them {' and '.join(also)}" if also else ""
        return f"{self.held} of {self.checked} checked rows hold{beside}."

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        answer: dict[str, object] = {
            "name": self.entry.name,
            "claim": self.entry.claim,
            "teaches": self.entry.teaches,
            "basis": self.entry.basis.value,
            "variant": self.choice,
            "checked": self.checked,
            "held": self.held,
            "rows": [as_json(row, self.entry) for row in self.rows],
            "seed": self.seed,
            "cpu_s": round(self.cpu_s, 3),
            "took_s": round(self.took_s, 1),
        }
        if self.error:
            answer["error"] = self.error
        return answer


def as_json(row: Row, entry: Reproduction) -> dict[str, object]:
    """Return a row: what every kind has, and what only its own kind has."""
    basis: Basis = row.basis or entry.basis
    fields: dict[str, object] = {
        "what": row.what,
        "kind": row.kind.value,
        "ours": row.ours,
        "published": row.published,
        "basis": basis.value,
    }
    if row.kind is Kind.CHECKED:
        fields |= {"holds": row.holds, "if_not": row.if_not or entry.if_not}
    if row.kind is Kind.CALIBRATED:
        fields |= {"near": row.holds, "constant": row.constant}
    if row.is_excused and row.excuse is not None:
        fields["excuse"] = {
            "why": row.excuse.why,
            "low": row.excuse.low,
            "high": row.excuse.high,
        }
    if not row.decides:
        fields["decides"] = False
    return fields


def run(entry: Reproduction, setting: Setting) -> Result:
    """Run an entry; raises what it raises."""
    begin_s, begin_cpu_s = monotonic(), _cpu_s()
    rows = entry.run(setting)
    return Result(
        entry,
        rows,
        setting.seed,
        setting.choice,
        _cpu_s() - begin_cpu_s,
        monotonic() - begin_s,
    )


def run_or_say(entry: Reproduction, setting: Setting) -> Result:
    """Run an entry among others: one that cannot run says why, and the rest goes on."""
    begin_s = monotonic()
    try:
        return run(entry, setting)
    except Exception as error:  # hours of other entries are not lost with this one
        why = str(error) if isinstance(error, InterlaneError) else repr(error)
        took_s = monotonic() - begin_s
        return Result(entry, (), setting.seed, setting.choice, 0.0, took_s, why)


def summary(results: Sequence[Result]) -> str:
    """Return how many checked rows of all entries hold: the first line of every report."""
    held, checked = (sum(getattr(one, name) for one in results) for name in ("held", "checked"))
    said = f"{held:,} of {checked:,} checked rows of {len(results)} entries hold."
    missing = [one.entry.name for one in results if one.error]
    return f"{said} Not run: {', '.join(missing)}." if missing else said


def _cpu_s() -> float:
    """Return the CPU seconds so far, those of processes that were waited for included."""
    return sum(os.times()[:4])
