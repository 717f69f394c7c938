"""The queue: every job in a line, why it waits and when it may start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup
from nicegui import ui

from interlane.live.auth import Role
from interlane.live.store.record import JobRecord
from interlane.model import JobId, Placement, Refusal
from interlane.model.lifecycle import HOLDING, JobState
from interlane.pages import words
from interlane.pages.bulk import bulk_bar
from interlane.pages.charts import clock
from interlane.pages.frame import LiveMarkup, job_link, live, more, state_word, table, title
from interlane.pages.site import Site, Visit
from interlane.predict.starts import StartBand

ROWS: Final = 50
SHOWS: Final = {"waiting": "Waiting", "running": "Running", "ended": "Ended"}
STARTS_EVERY_S: Final = 5.0
TEXT_MAX: Final = 64
LOOKED_THROUGH_MAX: Final = 5_000
"""Ended jobs that are looked through for those that are searched for."""

WAITING: Final = frozenset({JobState.QUEUED, JobState.HELD})
ENDED: Final = frozenset(state for state in JobState if state.has_ended)
STATES: Final = {
    "waiting": WAITING,
    "running": frozenset({*HOLDING, JobState.UNKNOWN}) - {JobState.GROWING},
    "ended": ENDED,
}

SORTS: Final[Mapping[str, Callable[[JobRecord], Any]]] = {
    "job": lambda one: one.id,
    "user": lambda one: one.user,
    "queue": lambda one: one.queue,
    "priority": lambda one: -one.job.priority,
    "waited": lambda one: one.submitted_s,
    "ran": lambda one: one.started_s or 0.0,
    "state": lambda one: one.state.value,
}
"""By what rows are sorted if somebody says so; a sign before the word turns it around."""


async def queue(visit: Visit) -> None:
    """Show jobs, fifty at a time."""
    title("Queue", "Who waits, why, and when they are likely to start.")
    asked = _Asked(visit)
    view = _View(visit.site, asked, picks=_may_act(visit))
    LiveMarkup(_filters(visit.site, asked))
    if view.picks:
        bulk_bar(visit, view.picked)
    shown = await live(visit, view.markup)
    shown.on("picked", lambda event: view.pick(event.args))
    if asked.show == "waiting":
        _keep_starts_fresh(visit, view)


def _may_act(visit: Visit) -> bool:
    return visit.caller is not None and visit.caller.role >= Role.USER


class _Asked:
    """What the page's address asks for."""

    def __init__(self, visit: Visit) -> None:
        show = visit.asked("show", "waiting")
        self.show = show if show in SHOWS else "waiting"
        self.user = visit.asked("user")[:TEXT_MAX]
        self.queue = visit.asked("queue")[:TEXT_MAX]
        self.text = visit.asked("q")[:TEXT_MAX]
        state = visit.asked("state")
        self.state = state if state in {one.value for one in STATES[self.show]} else ""
        sort = visit.asked("sort")
        self.sort = sort if sort.removeprefix("-") in SORTS else ""
        self.page = _number(visit.asked("page"))
        """Number of the page, of jobs that have not ended."""
        self.before = _number(visit.asked("before")) or None
        """Serial before which ended jobs are listed."""

    def link(self, words: str, **change: object) -> Markup:
        """Return a link to the same with something changed."""
        asked = {
            "show": self.show,
            "q": self.text,
            "user": self.user,
            "queue": self.queue,
            "state": self.state,
            "sort": self.sort,
            **change,
        }
        kept = {name: value for name, value in asked.items() if value}
        return Markup('<a href="/queue?{}">{}</a>').format(urlencode(kept), words)

    def head(self, word: str, sort: str) -> Markup:
        """Return the head of a column that sorts the rows, one way and then the other."""
        is_up = self.sort == sort
        mark = {sort: " ▲", f"-{sort}": " ▼"}.get(self.sort, "")
        return self.link(f"{word}{mark}", sort=f"-{sort}" if is_up else sort)

    def wants(self, one: JobRecord) -> bool:
        """Tell whether a job is among those that are asked for."""
        return (
            self.user in ("", one.user)
            and self.queue in ("", one.queue)
            and self.state in ("", one.state.value)
            and self.text.lower() in one.id.lower()
        )

    @property
    def is_narrow(self) -> bool:
        """Whether only some jobs are asked for."""
        return bool(self.text or self.user or self.queue or self.state)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _keep_starts_fresh(visit: Visit, view: "_View") -> None:
    async def play() -> None:
        if visit.caller is not None:
            view.bands = await visit.site.service.starts(view.shown)

    ui.timer(STARTS_EVERY_S, play)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a table, beside the box that picks a row."""

    head: tuple[str | Markup, ...]
    numbers: tuple[int, ...]
    caption: str
    empty: str | Markup


class _View:
    """What is shown of the queue now."""

    def __init__(self, site: Site, asked: _Asked, *, picks: bool) -> None:
        self._site = site
        self._asked = asked
        self.picks = picks
        """Whether rows can be picked."""
        self.bands: Mapping[JobId, StartBand] = {}
        """When jobs are likely to start, as far as that is known."""
        self.shown: tuple[JobId, ...] = ()
        """The jobs that are shown and wait for a place."""
        self._there: frozenset[str] = frozenset()
        """All jobs that are shown."""
        self._picked: tuple[str, ...] = ()

    def pick(self, ids: object) -> None:
        """Note which rows are picked; only what is shown can be."""
        found = ids if isinstance(ids, list) else []
        self._picked = tuple(str(one) for one in found[:ROWS])

    def picked(self) -> list[str]:
        """Return the jobs that are picked and still shown."""
        return [one for one in self._picked if one in self._there]

    def markup(self) -> Markup:
        """Return tabs, rows, and links to more rows."""
        return Markup("{}{}").format(self._tabs(), self._rows())

    def _tabs(self) -> Markup:
        counts = self._site.view.counts()
        tabs = Markup("").join(
            Markup('<span class="tab"{}>{}</span>').format(
                Markup(' aria-current="true"') if show == self._asked.show else "",
                self._asked.link(
                    f"{word} {sum(counts.get(state, 0) for state in STATES[show]):,}",
                    show=show,
                    state="",
                    sort="",
                ),
            )
            for show, word in SHOWS.items()
        )
        return Markup('<div class="tabs">{}</div>').format(tabs)

    def _rows(self) -> Markup:
        if self._asked.show == "ended":
            return self._ended()
        if self._asked.show == "running":
            return self._running()
        return self._waiting()

    def _open(self, states: frozenset[JobState]) -> list[JobRecord]:
        found = self._site.view.open_jobs()
        return [one for one in found if one.state in states and self._asked.wants(one)]

    def _sorted(self, records: list[JobRecord], usual: Callable[[JobRecord], Any]) -> None:
        """Sort rows as was asked, or as is usual."""
        sort = self._asked.sort
        records.sort(key=lambda one: one.serial)
        key = SORTS.get(sort.removeprefix("-"), usual)
        records.sort(key=key, reverse=sort.startswith("-"))

    def _table(
        self, columns: _Columns, records: Sequence[JobRecord], cells: Sequence[Sequence[object]]
    ) -> Markup:
        """Return rows with a box each, by which they are known again and picked."""
        ids = [f"row-{one.id}" for one in records]
        self._there = frozenset(one.id for one in records)
        head, rows = columns.head, list(cells)
        numbers: tuple[int, ...] = columns.numbers
        if self.picks:
            head = (_ALL, *head)
            rows = [(_box(one), *row) for one, row in zip(records, rows, strict=True)]
            numbers = tuple(at + 1 for at in numbers)
        return table(head, rows, columns.caption, columns.empty, numbers, ids)

    # -- those that wait --------------------------------------------------------------

    def _waiting(self) -> Markup:
        records = self._open(WAITING)
        begin = self._asked.page * ROWS
        if self._asked.sort:
            self._sorted(records, lambda one: one.serial)
            shown = records[begin : begin + ROWS]
            line = self._site.view.line(
                {one.id for one in shown if one.state is JobState.QUEUED}, 0, ROWS
            )
        else:
            shown, line = self._in_line(records, begin)
        self.shown = tuple(one for one, _ in line)
        refusals = dict(line)
        now_s, asked = self._site.view.now_s(), self._asked
        cells = [
            (
                f"{begin + at + 1:,}",
                job_link(one.id),
                one.user,
                one.job.priority,
                one.job.request,
                words.coarse_span(now_s - one.submitted_s),
                start_words(self.bands.get(one.id), now_s),
                _why(one, refusals.get(one.id)),
            )
            for at, one in enumerate(shown)
        ]
        head = (
            "#",
            asked.head("job", "job"),
            asked.head("user", "user"),
            asked.head("prio", "priority"),
            "request",
            asked.head("waited", "waited"),
            "starts in",
            "why it waits",
        )
        columns = _Columns(head, (0, 3, 5, 6), "Waiting jobs", self._nobody("Nobody waits."))
        return self._table(columns, shown, cells) + self._pager(len(records))

    def _in_line(
        self, records: Sequence[JobRecord], begin: int
    ) -> tuple[list[JobRecord], list[tuple[JobId, Refusal | None]]]:
        """Return one page in the order in which jobs go, and why each waits."""
        queued = {one.id: one for one in records if one.state is JobState.QUEUED}
        line = self._site.view.line(queued, begin, ROWS)
        shown = [queued[one] for one, _ in line]
        # Behind those who wait for a place, who wait for something else.
        held = sorted(
            (one for one in records if one.state is JobState.HELD), key=lambda one: one.serial
        )
        first = max(0, begin - len(queued))
        return [*shown, *held[first : first + ROWS - len(shown)]], line

    # -- those that run or ran --------------------------------------------------------

    def _running(self) -> Markup:
        records = self._open(STATES["running"])
        self._sorted(records, lambda one: -one.serial)
        begin, asked = self._asked.page * ROWS, self._asked
        now_s = self._site.view.now_s()
        shown = records[begin : begin + ROWS]
        cells = [
            (
                job_link(one.id),
                one.user,
                state_word(one.state),
                one.job.request,
                devices_of(one),
                words.coarse_span(now_s - (one.started_s or now_s)),
                words.span(one.estimate_s),
            )
            for one in shown
        ]
        head = (
            asked.head("job", "job"),
            asked.head("user", "user"),
            asked.head("state", "state"),
            "request",
            "on",
            asked.head("ran", "ran"),
            "estimated",
        )
        columns = _Columns(head, (5, 6), "Running jobs", self._nobody("Nothing runs."))
        return self._table(columns, shown, cells) + self._pager(len(records))

    def _ended(self) -> Markup:
        asked, view = self._asked, self._site.view
        found, last = self._ended_jobs()
        now_s = view.now_s()
        cells = [
            (
                job_link(one.id),
                one.user,
                state_word(one.state),
                words.span(_waited_s(one)),
                words.span(_ran_s(one)),
                clock(one.ended_s or now_s),
                _cut(one.reason or ""),
            )
            for one in found
        ]
        head = ("job", "user", "state", "waited", "ran", "ended", "what happened")
        empty = self._nobody("Nothing has ended yet.")
        made = self._table(_Columns(head, (3, 4, 5), "Ended jobs", empty), found, cells)
        links = [asked.link("Newest", before=None)] if asked.before else []
        if last is not None:
            links.append(asked.link("Older", before=last))
        return made + _pager(links, "")

    def _ended_jobs(self) -> tuple[list[JobRecord], int | None]:
        """Return a page of jobs that have ended, and where older ones go on, if there are."""
        asked = self._asked
        states = [JobState(asked.state)] if asked.state else ENDED
        before, looked, found = asked.before, 0, list[JobRecord]()
        while looked < LOOKED_THROUGH_MAX:
            size = 500 if asked.text or asked.queue else ROWS
            page = self._site.view.jobs(
                size, before=before, states=states, user=asked.user or None
            )
            wanted = (one for one in page if asked.wants(one))
            found += islice(wanted, ROWS - len(found))
            if len(found) == ROWS:
                return found, found[-1].serial
            if len(page) < size:
                return found, None
            looked, before = looked + size, page[-1].serial
        return found, before

    def _nobody(self, plain: str) -> Markup:
        """Return what is said where there is no row, and what to do next."""
        if self._asked.is_narrow:
            none = Markup("No job is like this. {}")
            return none.format(
                self._asked.link("Show all", q="", user="", queue="", state="", before=None)
            )
        if not self.picks:
            return Markup("{}").format(plain)
        return Markup(
            '{} <a href="/submit">Submit a job</a>, or <code>interlane submit FILE</code>.'
        ).format(plain)

    def _pager(self, count: int) -> Markup:
        page, last = self._asked.page, max(0, (count - 1) // ROWS)
        links = []
        if page > 0:
            links += [self._asked.link("First"), self._asked.link("Previous", page=page - 1)]
        if page < last:
            links.append(self._asked.link("Next", page=page + 1))
            links.append(self._asked.link("Last", page=last))
        return _pager(links, f"Page {page + 1:,} of {last + 1:,}" if last else "")


_ALL: Final = Markup('<input type="checkbox" data-pick-all aria-label="All jobs of this page">')


def _box(record: JobRecord) -> Markup:
    return Markup('<input type="checkbox" data-pick value="{}" aria-label="Pick {}">').format(
        record.id, record.id
    )


def _pager(links: Sequence[Markup], said: str) -> Markup:
    if not links:
        return Markup("")
    return Markup(
        '<nav class="pager" aria-label="More jobs">{} <span class="soft">{}</span></nav>'
    ).format(Markup(" ").join(links), said)


def _filters(site: Site, asked: _Asked) -> Markup:
    """Return the search: what it finds is in the page's address, and can be sent around."""
    queues = sorted({one.queue for one in site.view.open_jobs()} | {asked.queue} - {""})
    states = sorted(one.value for one in STATES[asked.show])
    return Markup(
        '<form class="filters" method="get" action="/queue" role="search">'
        '<input type="hidden" name="show" value="{}">'
        '<input type="hidden" name="sort" value="{}">'
        '<label>Search <input type="search" name="q" value="{}" maxlength="64" '
        'placeholder="part of a name"></label>'
        '<label>User <input name="user" value="{}" maxlength="64"></label>'
        '<label>Queue <select name="queue" aria-label="Queue">{}</select></label>'
        '<label>State <select name="state" aria-label="State">{}</select></label>'
        '<button type="submit">Show</button></form>'
    ).format(
        asked.show,
        asked.sort,
        asked.text,
        asked.user,
        _options(queues, asked.queue),
        _options(states, asked.state),
    )


def _options(values: Sequence[str], chosen: str) -> Markup:
    return Markup("").join(
        Markup('<option value="{}"{}>{}</option>').format(
            value, Markup(" selected") if value == chosen else "", value or "all"
        )
        for value in ("", *values)
    )


# -- cells ----------------------------------------------------------------------------

SHORT_MAX: Final = 44


def _why(record: JobRecord, refusal: Refusal | None) -> Markup:
    """Return why a job waits in a few words, which unfold to the sentence."""
    if refusal is None:
        return _cut(record.reason or "")
    behind = f" behind {refusal.blocked_by}" if refusal.blocked_by else ""
    sentence = Markup('{} <span class="soft">{}</span>').format(refusal.reason, refusal.remedy)
    return more(f"{refusal.tier.label}{behind}", sentence)


def _cut(sentence: str) -> Markup:
    """Return a sentence; a long one unfolds."""
    if len(sentence) <= SHORT_MAX:
        return Markup("{}").format(sentence)
    return more(f"{sentence[: SHORT_MAX - 1].rstrip()}…", sentence)


def start_words(band: StartBand | None, now_s: float) -> Markup:
    """Return when a job is likely to start; nine times in ten is told where one points."""
    if band is None:
        return Markup(words.UNKNOWN)
    soon, late = (
        words.coarse_span(max(0.0, at_s - now_s)) for at_s in (band.p50_s, band.p90_s)
    )
    told = f"as likely as not; nine times in ten within {late}"
    return Markup('<span title="{}">{}</span>').format(told, soon)


def devices_of(record: JobRecord) -> str:
    """Return where a job holds a place, in a few words."""
    return "" if record.placement is None else place_words(record.placement)


def place_words(placement: Placement) -> str:
    """Return where a place is, in a few words."""
    return ", ".join(
        f"{spot.machine}:{'/'.join(map(str, spot.gpus)) or '-'}" for spot in placement.spots
    )


def _waited_s(record: JobRecord) -> float:
    until_s = record.started_s or record.ended_s or record.submitted_s
    return until_s - record.submitted_s


def _ran_s(record: JobRecord) -> float | None:
    if record.started_s is None or record.ended_s is None:
        return None
    return record.ended_s - record.started_s
