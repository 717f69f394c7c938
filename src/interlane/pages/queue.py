"""The queue: every job in a line, why it waits and when it may start."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup
from nicegui import ui

from interlane.live.store.record import JobRecord
from interlane.model import JobId, Placement
from interlane.model.lifecycle import HOLDING, JobState
from interlane.pages import words
from interlane.pages.frame import LiveMarkup, job_link, live, state_word, table, title
from interlane.pages.site import Site, Visit
from interlane.predict.starts import StartBand

ROWS: Final = 50
SHOWS: Final = {"waiting": "Waiting", "running": "Running", "ended": "Ended"}
STARTS_EVERY_S: Final = 5.0


async def queue(visit: Visit) -> None:
    """Show jobs, fifty at a time."""
    title("Queue", "Who waits, why, and when they are likely to start.")
    asked = _Asked(visit)
    view = _View(visit.site, asked)
    LiveMarkup(_filters(asked))
    await live(visit, view.markup)
    if asked.show == "waiting":
        _keep_starts_fresh(visit, view)


class _Asked:
    """What the page's address asks for."""

    def __init__(self, visit: Visit) -> None:
        show = visit.asked("show", "waiting")
        self.show = show if show in SHOWS else "waiting"
        self.user = visit.asked("user")[:64]
        self.page = _number(visit.asked("page"))
        """Number of the page, of jobs that have not ended."""
        self.before = _number(visit.asked("before")) or None
        """Serial before which ended jobs are listed."""

    def link(self, words: str, **change: object) -> Markup:
        """Return a link to the same with something changed."""
        asked = {"show": self.show, "user": self.user, **change}
        kept = {name: value for name, value in asked.items() if value}
        return Markup('<a href="/queue?{}">{}</a>').format(urlencode(kept), words)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _keep_starts_fresh(visit: Visit, view: "_View") -> None:
    async def play() -> None:
        if visit.caller is not None:
            view.bands = await visit.site.starts.bands(view.shown)

    ui.timer(STARTS_EVERY_S, play)


class _View:
    """What is shown of the queue now."""

    def __init__(self, site: Site, asked: _Asked) -> None:
        self._site = site
        self._asked = asked
        self.bands: Mapping[JobId, StartBand] = {}
        """When jobs are likely to start, as far as that is known."""
        self.shown: tuple[JobId, ...] = ()
        """The waiting jobs that are shown."""

    def markup(self) -> Markup:
        """Return tabs, rows, and links to more rows."""
        return Markup("{}{}").format(self._tabs(), self._rows())

    def _tabs(self) -> Markup:
        counts = self._site.view.counts()
        of = {
            "waiting": {JobState.QUEUED, JobState.HELD},
            "running": {*HOLDING, JobState.UNKNOWN},
            "ended": {state for state in JobState if state.has_ended},
        }
        tabs = Markup("").join(
            Markup('<span class="tab"{}>{}</span>').format(
                Markup(' aria-current="true"') if show == self._asked.show else "",
                self._asked.link(
                    f"{word} {sum(counts.get(state, 0) for state in of[show]):,}", show=show
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

    def _open(self) -> list[JobRecord]:
        user = self._asked.user
        return [one for one in self._site.view.open_jobs() if user in ("", one.user)]

    def _waiting(self) -> Markup:
        records = {one.id: one for one in self._open() if one.state is JobState.QUEUED}
        held = [one for one in self._open() if one.state is JobState.HELD]
        begin = self._asked.page * ROWS
        shown, why = self._line(records, begin)
        # Behind those who wait for a place, who wait for something else.
        first = max(0, begin - len(records))
        more = sorted(held, key=lambda one: one.serial)[first : first + ROWS - len(shown)]
        shown += more
        why |= {one.id: one.reason or "" for one in more}
        now_s = self._site.view.now_s()
        rows = [
            (
                f"{begin + at + 1:,}",
                job_link(one.id),
                one.user,
                words.gpus(self._site.view.asked_milli(one)),
                words.coarse_span(now_s - one.submitted_s),
                start_words(self.bands.get(one.id), now_s),
                Markup('<span class="reason">{}</span>').format(why.get(one.id, "")),
            )
            for at, one in enumerate(shown)
        ]
        head = ("#", "job", "user", "asks", "waited", "starts in", "why it waits")
        made = table(head, rows, "Waiting jobs", "Nobody waits.", (0, 3, 4, 5))
        return made + self._pager(len(records) + len(held))

    def _line(
        self, records: Mapping[JobId, JobRecord], begin: int
    ) -> tuple[list[JobRecord], dict[JobId, str]]:
        """Return the records of one page in their order, and why each waits."""
        page = self._site.view.line(records, begin, ROWS)
        self.shown = tuple(one for one, _ in page)
        why = {one: f"{why.tier.label}: {why.reason}" for one, why in page if why}
        return [records[one] for one in self.shown], why

    def _running(self) -> Markup:
        waiting = (JobState.QUEUED, JobState.HELD)
        holders = [one for one in self._open() if one.state not in waiting]
        records = sorted(holders, key=lambda one: -one.serial)
        begin = self._asked.page * ROWS
        now_s = self._site.view.now_s()
        rows = [
            (
                job_link(one.id),
                one.user,
                state_word(one.state),
                words.gpus(self._site.view.asked_milli(one)),
                devices_of(one),
                words.coarse_span(now_s - (one.started_s or now_s)),
                words.span(one.estimate_s),
            )
            for one in records[begin : begin + ROWS]
        ]
        head = ("job", "user", "state", "asks", "on", "ran", "estimated")
        made = table(head, rows, "Running jobs", "Nothing runs.", (3, 5, 6))
        return made + self._pager(len(records))

    def _ended(self) -> Markup:
        asked = self._asked
        found = self._site.view.ended_jobs(ROWS, before=asked.before, user=asked.user or None)
        now_s = self._site.view.now_s()
        rows = [
            (
                job_link(one.id),
                one.user,
                state_word(one.state),
                words.span(_waited_s(one)),
                words.span(_ran_s(one)),
                words.coarse_span(now_s - (one.ended_s or now_s)),
                Markup('<span class="reason">{}</span>').format(one.reason or ""),
            )
            for one in found
        ]
        head = ("job", "user", "state", "waited", "ran", "ago", "what happened")
        made = table(head, rows, "Ended jobs", "Nothing has ended yet.", (3, 4, 5))
        links = [self._asked.link("Newest", before=None)] if self._asked.before else []
        if len(found) == ROWS:
            links.append(self._asked.link("Older", before=found[-1].serial))
        return made + _pager(links, "")

    def _pager(self, count: int) -> Markup:
        page, last = self._asked.page, max(0, (count - 1) // ROWS)
        links = []
        if page > 0:
            links += [self._asked.link("First"), self._asked.link("Previous", page=page - 1)]
        if page < last:
            links.append(self._asked.link("Next", page=page + 1))
            links.append(self._asked.link("Last", page=last))
        return _pager(links, f"Page {page + 1:,} of {last + 1:,}" if last else "")


def _pager(links: Sequence[Markup], said: str) -> Markup:
    if not links:
        return Markup("")
    return Markup(
        '<nav class="pager" aria-label="More jobs">{} <span class="soft">{}</span></nav>'
    ).format(Markup(" ").join(links), said)


def _filters(asked: _Asked) -> Markup:
    return Markup(
        '<form class="filters" method="get" action="/queue"><input type="hidden" name="show" '
        'value="{}"><label>User <input name="user" value="{}" maxlength="64"></label>'
        '<button type="submit">Show</button></form>'
    ).format(asked.show, asked.user)


# -- cells ----------------------------------------------------------------------------


def start_words(band: StartBand | None, now_s: float) -> str:
    """Return when a job is likely to start, as a band of waiting times."""
    if band is None:
        return words.UNKNOWN
    soon, late = (
        words.coarse_span(max(0.0, at_s - now_s)) for at_s in (band.p50_s, band.p90_s)
    )
    return soon if soon == late else f"{soon} – {late}"


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
