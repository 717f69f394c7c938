"""Reports on uploaded traces, kept for a while; made away from the server."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from starlette.responses import HTMLResponse, PlainTextResponse, Response

PATH: Final = "/traces/reports"
KEPT_MAX: Final = 20


@dataclass
class ReportPages:
    """Pages by an id that nobody estimates; the oldest make way."""

    folder: TemporaryDirectory[str] = field(
        default_factory=lambda: TemporaryDirectory(prefix="interlane-reports-")
    )
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
        return Path(self.folder.name) / f"{name}.html"


def rendered(path: Path, name: str) -> str:
    """Return the report on a trace as one page."""
    from interlane.usecases import traces

    return traces.report(path).page(name)
