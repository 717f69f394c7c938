"""What is wrong with a trace: counted, named, and never left out in silence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QualityFinding:
    """Rows of a table with which something is wrong."""

    table: str
    what: str
    rows: int
    of: int
    example: str = ""
    """Where it was first seen, or how far it goes."""

    def as_dict(self) -> dict[str, object]:
        """Return the finding as the JSON has it."""
        share = round(100 * self.rows / self.of, 4) if self.of else None
        return {
            "table": self.table,
            "what": self.what,
            "rows": self.rows,
            "of": self.of,
            "percent": share,
            "example": self.example,
        }


def found(
    table: str, what: str, rows: int, of: int, example: str = ""
) -> tuple[QualityFinding, ...]:
    """Return the finding, or nothing when no row is concerned."""
    return (QualityFinding(table, what, rows, of, example),) if rows else ()
