"""Who did what, and from where: a file of its own that only its owner reads.

One line of JSON for every token made or ended, sign-in, denial, deployment and change of what
is somebody else's.  Jobs are in the log.  Denials of one caller beyond a few in a row are
counted, not written: the next line says how many there were.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from interlane.live.rates import RateLimit

FILE: Final = "audit.log"
FILE_BYTES: Final = 32 << 20
KEPT_FILES: Final = 4
DENIALS_PER_S: Final = 1.0
DENIALS_IN_A_ROW: Final = 20.0


log = logging.getLogger("interlane.live")


class AuditLog:
    """See the module's text; any thread may write."""

    def __init__(self, folder: Path | None, now_s: Callable[[], float]) -> None:
        """Write into a folder; nowhere if there is none."""
        self._file = None if folder is None else folder / FILE
        self._now_s = now_s
        self._lock = threading.Lock()
        self._denials = RateLimit(DENIALS_PER_S, DENIALS_IN_A_ROW)
        self._unwritten = 0

    def note(self, what: str, actor: str | None, address: str, **detail: Any) -> None:  # noqa: ANN401
        """Write a line; it is on disk when this returns."""
        self._append(what, actor, address, detail, waits=True)

    def _append(
        self,
        what: str,
        actor: str | None,
        address: str,
        detail: Mapping[str, Any],
        *,
        waits: bool,
    ) -> None:
        said = {"at_s": self._now_s(), "what": what, "actor": actor, "address": address}
        with self._lock:
            if self._unwritten:
                said["unwritten_denials"], self._unwritten = self._unwritten, 0
            try:
                self._write(json.dumps(said | dict(detail)) + "\n", waits=waits)
            except OSError as error:
                log.error("A line of the audit log was lost (%s): %s", error.strerror, said)

    def deny(self, actor: str | None, address: str, **detail: Any) -> None:  # noqa: ANN401
        """Write that something was denied, unless that was written often of late."""
        if self._denials.wait_s(actor or address):
            self._unwritten += 1
        else:
            self._append("denied", actor, address, detail, waits=False)

    def since(self, at_s: float, limit: int) -> list[dict[str, Any]]:
        """Return the newest lines since a moment, the oldest first."""
        found = [one for one in self._lines() if one["at_s"] >= at_s]
        return found[-limit:]

    def _write(self, line: str, *, waits: bool) -> None:
        if self._file is None:
            return
        fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
            if waits:
                os.fdatasync(fd)
            is_full = os.fstat(fd).st_size > FILE_BYTES
        finally:
            os.close(fd)
        if is_full:
            for number in range(KEPT_FILES - 1, 0, -1):
                older = self._older(number)
                if older.exists():
                    older.replace(self._older(number + 1))
            self._file.replace(self._older(1))

    def _lines(self) -> Iterator[dict[str, Any]]:
        if self._file is None:
            return
        files = [self._older(number) for number in range(KEPT_FILES, 0, -1)]
        for file in (*files, self._file):
            if file.exists():
                yield from _read(file)

    def _older(self, number: int) -> Path:
        assert self._file is not None
        return self._file.with_name(f"{self._file.name}.{number}")


def _read(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8", errors="replace") as opened:
        for line in opened:
            try:
                said = json.loads(line)
                yield {**said, "at_s": float(said["at_s"])}
            except (ValueError, TypeError, KeyError):
                continue  # a line that was torn when the machine went down
