"""Reports on uploaded traces, kept for a while; made away from the server."""

import gzip
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from starlette.responses import HTMLResponse, PlainTextResponse, Response

from interlane.model import InvalidInput

PATH: Final = "/traces/reports"
UPLOAD_BYTES_MAX: Final = 64 << 20
KEPT_MAX: Final = 20
ROWS_MAX: Final = 2_000_000
BYTES_MAX: Final = 256 << 20
PART_BYTES: Final = 1 << 20


@dataclass
class ReportPages:
    """Pages by an id that nobody estimates; the oldest make way."""

    folder: Path
    """One that the server empties when it starts."""
    _kept: list[str] = field(default_factory=list)

    def add(self, page: str) -> str:
        """Keep a page; return its id."""
        name = secrets.token_urlsafe(16)
        self._file(name).write_text(page, encoding="utf-8")
        self._kept.append(name)
        while len(self._kept) > KEPT_MAX:
            self._file(self._kept.pop(0)).unlink()
        return name

    def answer(self, name: str) -> Response:
        """Return a page, which may neither call home nor touch the page around it."""
        if name not in self._kept:
            return PlainTextResponse("There is no such report; make it anew.\n", 404)
        from interlane.traces.report.page import POLICY

        text = self._file(name).read_text(encoding="utf-8")
        policy = f"{POLICY}; sandbox allow-scripts; frame-ancestors 'self'"
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.html"


def must_be_modest(path: Path) -> None:
    """Refuse a file that holds far more than its size says."""
    if path.suffix == ".parquet":
        import polars

        rows = polars.scan_parquet(path).select(polars.len()).collect().item()
        size = 0
    else:
        rows = size = 0
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
            while rows <= ROWS_MAX and size <= BYTES_MAX and (part := opened.read(PART_BYTES)):
                rows, size = rows + part.count(b"\n"), size + len(part)
    if rows > ROWS_MAX or size > BYTES_MAX:
        raise InvalidInput(
            f"The trace has more than {ROWS_MAX:,} rows or {BYTES_MAX >> 20} MiB; use "
            "'interlane trace report', which has no such bound."
        )


def rendered(path: Path, name: str) -> str:
    """Return the report on a trace as one page."""
    from interlane.usecases import traces

    must_be_modest(path)
    return traces.report(path).page(name)
