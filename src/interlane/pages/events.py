"""Events: everything that happened, the newest first, as the log tells it."""

from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup

from interlane.model import LogEntry
from interlane.pages import words
from interlane.pages.charts import clock
from interlane.pages.details import detail
from interlane.pages.frame import LiveMarkup, job_link, live, table, title
from interlane.pages.site import Site, Visit

ROWS: Final = 100
READ: Final = 500
LOOKED_THROUGH_MAX: Final = 10_000
TEXT_MAX: Final = 64


async def events(visit: Visit) -> None:
    """Show the newest entries of the log."""
    title("Events", "Everything that happened to jobs and machines, the newest first.")
    text = visit.asked("q")[:TEXT_MAX]
    before = visit.asked("before")
    last = int(before) if before.isascii() and before.isdigit() and len(before) < 16 else None
    LiveMarkup(_search(text))
    await live(visit, lambda: _shown(visit.site, text, last))


def _search(text: str) -> Markup:
    return Markup(
        '<form class="filters" method="get" action="/events" role="search">'
        '<label>Search <input type="search" name="q" value="{}" maxlength="64" '
        'placeholder="a job, a machine, failed"></label>'
        '<button type="submit">Show</button></form>'
    ).format(text)


def _shown(site: Site, text: str, before: int | None) -> Markup:
    found, older = _found(site, text, before)
    rows = [
        (
            clock(entry.at_s),
            words.kind(entry),
            _about(entry),
            detail(entry),
        )
        for entry in found
    ]
    head = ("when", "what", "of", "details")
    ids = [f"event-{entry.seq}" for entry in found]
    made = table(head, rows, "Events", "Nothing has happened yet.", (), ids)
    if older is None:
        return made
    asked = urlencode({"q": text, "before": older})
    return made + Markup(
        '<nav class="pager" aria-label="More events"><a href="/events?{}">Older</a></nav>'
    ).format(asked)


def _found(site: Site, text: str, before: int | None) -> tuple[list[LogEntry], int | None]:
    """Return a page of entries, and the number before which older ones go on."""
    last = site.view.last_seq() if before is None else before - 1
    found: list[LogEntry] = []
    oldest = max(0, last - LOOKED_THROUGH_MAX)
    while last > oldest:
        begin = max(0, last - READ)
        entries = [one for one in site.view.log(begin, READ) if begin < one.seq <= last]
        for entry in reversed(entries):
            if not entry.is_void and _matches(entry, text.lower()):
                found.append(entry)
                if len(found) == ROWS:
                    return found, entry.seq
        last = begin
    return found, last + 1 if last > 0 else None


def _matches(entry: LogEntry, text: str) -> bool:
    told = (words.kind(entry), entry.job_id or "", entry.machine_id or "", detail(entry))
    return any(text in one.lower() for one in told)


def _about(entry: LogEntry) -> Markup | str:
    if entry.job_id is not None:
        return job_link(entry.job_id)
    return entry.machine_id or ""
