"""Tells others when a job starts or ends: a webhook that the job file or the operator names.

What has happened is read from the log, by a thread of its own: the driver neither waits for an
address nor knows that there is one.  Up to which entry all was told is kept in a file, so that
a server that ends in between tells the rest when it comes back; something may be told twice,
and says which it is.

Only addresses that the operator allows are spoken to: a server stands where users do not, and
must not fetch for them what they cannot reach.  Nobody is followed elsewhere (no redirects),
no proxy is used, and answers are not passed on.
"""

import http.client
import json
import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit

from interlane import __version__
from interlane.live.files.job import JobSpec
from interlane.live.files.notify import NotifyFields, NotifyOn
from interlane.live.store.record import JobRecord
from interlane.model import InvalidField, InvalidInput, LogEntry, Refuse, Started

LOOK_S: Final = 1.0
READ: Final = 500
TIMEOUT_S: Final = 10.0
WAITS_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Seconds before each further try."""

PENDING_MAX: Final = 1_000
AT_A_TIME: Final = 4
ANSWER_BYTES: Final = 4096
PORTS: Final = {"http": 80, "https": 443}
POSITION_FILE: Final = "notified"

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """Whom the server may tell: ``hooks.example.com``, ``*.example.com``, ``10.0.0.7:8080``."""

    allowed: tuple[str, ...] = ()
    usual: NotifyFields | None = None
    """Told of all jobs that name nobody."""

    def check(self, job: JobSpec) -> None:
        """Refuse a job that wants somebody told who may not be."""
        if job.notify is not None:
            self.check_url("notify.url", job.notify.url)

    def check_url(self, name: str, url: str) -> None:
        """Refuse an address that is none, or is not allowed."""
        parts = parsed(url)
        if parts is None:
            raise InvalidField(name, url, "it must read like https://hooks.example.com/path")
        if not any(_matches(one, parts) for one in self.allowed):
            told = ", ".join(self.allowed) or "none"
            rule = (
                f"allowed are: {told}; ask the operator for up --notify-allow {parts.hostname}"
            )
            raise InvalidField(name, f"{parts.scheme}://{parts.netloc}/...", rule)

    def of(self, job: JobSpec) -> NotifyFields | None:
        """Return whom to tell of a job; nobody if that is no longer allowed."""
        wanted = job.notify or self.usual
        parts = None if wanted is None else parsed(wanted.url)
        if parts is None or not any(_matches(one, parts) for one in self.allowed):
            return None
        return wanted


def rules_of(allowed: Iterable[str], url: str | None) -> NotifyRules:
    """Return the rules that an operator's words mean."""
    rules = NotifyRules(tuple(allowed))
    for one in rules.allowed:
        if not one or "/" in one or "*" in one.removeprefix("*."):
            raise InvalidInput(
                f"--notify-allow is {one!r}, but must read like hooks.example.com, "
                "*.example.com or 10.0.0.7:8080."
            )
    if url is None:
        return rules
    rules.check_url("--notify", url)
    return NotifyRules(rules.allowed, NotifyFields(url=url))


def parsed(url: str) -> SplitResult | None:
    """Return the parts of an address to which something can be sent."""
    try:
        parts = urlsplit(url)
        is_sound = parts.port is None or parts.port > 0
    except ValueError:
        return None
    named = bool(parts.hostname) and parts.username is None and parts.password is None
    return parts if is_sound and named and parts.scheme in PORTS else None


def _matches(allowed: str, parts: SplitResult) -> bool:
    """Tell whether an address is one of those that are allowed; a port is meant if given."""
    host, colon, port = allowed.lower().rpartition(":")
    if not colon:
        host, port = allowed.lower(), ""
    named = (parts.hostname or "").lower()
    usual = PORTS[parts.scheme]
    if (parts.port or usual) != (int(port) if port.isdigit() else usual):
        return False
    if host.startswith("*."):
        return named.endswith(host[1:])
    return named == host


# -- deliveries -----------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Delivery:
    seq: int
    url: str
    body: bytes
    tries: int = 0
    due_s: float = 0.0
    sending: "Future[str | None] | None" = None


class LogSource(Protocol):
    """What the notifier reads."""

    def log(self, after: int = 0, limit: int = READ) -> list[LogEntry]:
        """Return entries that follow one."""
        ...

    def job(self, job_id: str) -> JobRecord | None:
        """Return a job."""
        ...


Send = Callable[[str, bytes, int], "str | None"]
"""Sends a body; returns None if it was taken, else why not, with ``!`` first if for good."""


@dataclass(slots=True)
class Notifier:
    """See the module's text."""

    source: LogSource
    rules: NotifyRules
    position: Path
    last_seq: int
    """The newest entry at the start: on a server that never told anybody, history stays."""
    send: Send = field(default_factory=lambda: post)
    waits_s: tuple[float, ...] = WAITS_S
    look_s: float = LOOK_S
    counts: Counter[str] = field(default_factory=Counter)
    """Notifications by what became of them: sent or failed."""
    _pending: dict[int, _Delivery] = field(default_factory=dict)
    _seq: int = 0
    _closing: threading.Event = field(default_factory=threading.Event)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(AT_A_TIME, "notify")
    )
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to tell."""
        self._seq = self._told_up_to()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what was not told is told by the next server."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while not self._closing.wait(self.look_s):
            try:
                self._take_in()
                self._send_due(time.monotonic())
                self._keep()
            except Exception as error:  # nobody is told for a moment; the server goes on
                log.warning("Notifications wait: %s", error)

    def _take_in(self) -> None:
        """Read what is new, as far as there is room for it."""
        while len(self._pending) < PENDING_MAX:
            entries = self.source.log(self._seq, READ)
            for entry in entries:
                self._note(entry)
                self._seq = entry.seq
            if len(entries) < READ:
                return

    def _note(self, entry: LogEntry) -> None:
        if entry.job_id is None or entry.is_void:
            return
        what = event_of(entry)
        record = None if what is None else self.source.job(entry.job_id)
        wanted = None if record is None else self.rules.of(record.job)
        if what is None or record is None or wanted is None or not wanted.wants(what):
            return
        body = json.dumps(document_of(entry, what, record)).encode()
        self._pending[entry.seq] = _Delivery(entry.seq, wanted.url, body)

    def _send_due(self, now_s: float) -> None:
        for one in list(self._pending.values()):
            if one.sending is None and one.due_s <= now_s:
                one.sending = self._pool.submit(self.send, one.url, one.body, one.seq)
            elif one.sending is not None and one.sending.done():
                self._judge(one, one.sending, now_s)

    def _judge(self, one: _Delivery, sending: "Future[str | None]", now_s: float) -> None:
        error = sending.exception()
        why = f"{error!r}" if error is not None else sending.result()
        one.sending = None
        if why is None:
            self.counts["sent"] += 1
            del self._pending[one.seq]
        elif why.startswith("!") or one.tries >= len(self.waits_s):
            log.warning("Notification %d was given up: %s", one.seq, why.lstrip("!"))
            self.counts["failed"] += 1
            del self._pending[one.seq]
        else:
            one.due_s = now_s + self.waits_s[one.tries]
            one.tries += 1

    def _told_up_to(self) -> int:
        try:
            return int(self.position.read_text())
        except (OSError, ValueError):
            return self.last_seq

    def _keep(self) -> None:
        """Write down up to which entry everything was told."""
        told = min(self._pending, default=self._seq + 1) - 1
        beside = self.position.with_suffix(".new")
        text = str(told)
        if not self.position.exists() or self.position.read_text() != text:
            beside.write_text(text)
            beside.replace(self.position)


def event_of(entry: LogEntry) -> NotifyOn | None:
    """Return what others may want to know of; None for all that happens on the way."""
    if isinstance(entry.what, Started):
        return NotifyOn.STARTED
    if isinstance(entry.what, Refuse):
        return NotifyOn.REFUSED
    if entry.kind == "Cancelled":
        return NotifyOn.CANCELLED
    if entry.kind == "Finished":
        is_well = entry.detail.get("exit_code") == 0
        return NotifyOn.SUCCEEDED if is_well else NotifyOn.FAILED
    return None


def document_of(entry: LogEntry, what: NotifyOn, record: JobRecord) -> dict[str, Any]:
    """Return what is sent; neither commands nor variables of a job are in it."""
    return {
        "event": what.value,
        "seq": entry.seq,
        "at_s": entry.at_s,
        "job": {
            "id": record.id,
            "name": record.name,
            "user": record.user,
            "queue": record.queue,
            "state": record.state.value,
            "attempt": record.attempt,
            "submitted_s": record.submitted_s,
            "started_s": record.started_s,
            "ended_s": record.ended_s,
            "exit_code": record.exit_code,
            "reason": record.reason,
        },
        "text": f"{record.id} of {record.user}: {what.value}"
        + (f". {record.reason}" if record.reason else ""),
    }


def post(url: str, body: bytes, seq: int) -> str | None:
    """Send a notification; return None if it was taken, else why not."""
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path or "/"
    path += f"?{parts.query}" if parts.query else ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        trusted = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            host, parts.port, timeout=TIMEOUT_S, context=trusted
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", path, body, _headers(seq))
        answer = connection.getresponse()
        answer.read(ANSWER_BYTES)
        return _judged(answer.status)
    except (OSError, http.client.HTTPException) as error:
        return f"{host} did not take it ({error})."
    finally:
        connection.close()


def _headers(seq: int) -> Mapping[str, str]:
    return {
        "Content-Type": "application/json",
        "User-Agent": f"interlane/{__version__}",
        "X-Interlane-Delivery": str(seq),
    }


def _judged(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    is_passing = status >= 500 or status in (408, 425, 429)
    return f"{'' if is_passing else '!'}It was answered with {status}."
