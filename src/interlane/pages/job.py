"""A job: its life so far, why it is where it is, and what it prints."""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup
from nicegui import ui

from interlane.live.auth import Caller, Role
from interlane.live.http import acting
from interlane.live.http.documents import shown_spec
from interlane.live.measure.occupancy import DeviceUse
from interlane.live.store.record import JobRecord
from interlane.metrics.phases import phases
from interlane.model import JobId, LogEntry
from interlane.model.lifecycle import JobState
from interlane.pages import charts, words
from interlane.pages.charts import clock
from interlane.pages.details import detail
from interlane.pages.devices import beside_table, slowdown, tenants_table
from interlane.pages.frame import (
    Handler,
    LiveMarkup,
    action,
    as_yaml,
    card,
    confirmed,
    job_link,
    live,
    state_word,
    table,
    title,
)
from interlane.pages.job_use import over_time
from interlane.pages.queue import WAITING, devices_of
from interlane.pages.site import Site, Visit
from interlane.pages.submitting import written
from interlane.predict.starts import StartBand

LOG_BYTES: Final = 32 * 1024
LOG_EVERY_S: Final = 1.0
AHEAD_SHOWN: Final = 5
TIMELINE_MAX: Final = 500


async def job(visit: Visit) -> None:
    """Show one job."""
    job_id = visit.request.path_params["job_id"]
    record = await asyncio.to_thread(visit.site.view.job, job_id)
    title(record.id, f"by {record.user} in queue {record.queue}")
    view = _View(visit.site, record.id)
    await live(visit, view.head)
    _actions(visit, record)
    if record.is_open:
        _keep_starts_fresh(visit, view)
    await live(visit, view.body)
    LiveMarkup(Markup('<h2 id="log">Output</h2>'))
    printed = await live(visit, view.printed, LOG_EVERY_S, follow=True)
    printed.classes("log").props('tabindex="0" role="log" aria-labelledby="log"')
    caller = visit.caller
    whole = caller is not None and caller.owns(record.user)
    document = written(shown_spec(record.job.document, whole=whole))
    LiveMarkup(card("As submitted", as_yaml(document)))


def _actions(visit: Visit, record: JobRecord) -> None:
    """Show what may be done to the job by whoever looks at it."""
    caller, the = visit.caller, visit.site.service
    if caller is None or caller.role < Role.USER:
        return
    with ui.element("div").classes("line").props('role="group" aria-label="Actions"'):
        if record.is_open and caller.may_cancel(record):
            _canceller(visit, record)
        if record.state in WAITING and caller.may_cancel(record):
            _waiting_actions(visit, record)
        if caller.owns(record.user):

            async def again(who: Caller) -> None:
                made = await acting.run_again(the, record.id, who)
                ui.navigate.to(f"/jobs/{quote(made.id, safe='')}")

            _plain("Run again", action(visit, Role.USER, again))
        path = f"/submit?{urlencode({'job': record.id})}"
        _plain("Copy", lambda: ui.navigate.to(path))


def _plain(said: str, handler: Callable[[], Any]) -> None:
    ui.button(said, on_click=handler).props("dense no-caps outline")


def _waiting_actions(visit: Visit, record: JobRecord) -> None:
    """Show what may be done to a job that waits."""
    the = visit.site.service

    def held(*, wanted: bool) -> Handler:
        async def act(caller: Caller) -> None:
            await acting.hold(the, record.id, caller, held=wanted)
            ui.navigate.reload()

        return action(visit, Role.USER, act)

    if record.held_by is None:
        _plain("Hold", held(wanted=True))
    else:
        _plain("Release", held(wanted=False))
    value = ui.number("Priority", value=record.job.priority, min=0, max=100, precision=0)
    value.props("dense outlined").classes("short")

    async def set_priority(caller: Caller) -> None:
        changes = {"priority": int(value.value or 0)}
        changed = await acting.change(the, record.id, caller, changes)
        ui.notify(f"Priority {changed.job.priority}.", type="positive")

    _plain("Set priority", action(visit, Role.USER, set_priority))


def _canceller(visit: Visit, record: JobRecord) -> None:
    async def cancel(caller: Caller) -> None:
        await acting.cancel(visit.site.service, record.id, caller, visit.address)

    confirmed(
        f"Cancel {record.id}",
        "Cancel job",
        f"{record.id} leaves the queue, or is stopped if it runs. Cancel it?",
        action(visit, Role.USER, cancel),
    )


def _keep_starts_fresh(visit: Visit, view: "_View") -> None:
    async def play() -> None:
        if visit.caller is not None and view.record.state is JobState.QUEUED:
            await view.look_ahead()

    ui.timer(5.0, play)


class _View:
    """What is shown of a job now."""

    def __init__(self, site: Site, job_id: JobId) -> None:
        self._site = site
        self._id = job_id
        self.band: StartBand | None = None
        """When it is likely to start, if that is known."""

    @property
    def record(self) -> JobRecord:
        """The job as it stands."""
        return self._site.view.job(self._id)

    async def look_ahead(self) -> None:
        """Find out when it is likely to start; takes its time."""
        self.band = (await self._site.service.starts([self._id])).get(self._id)

    # -- head -------------------------------------------------------------------------

    def head(self) -> Markup:
        """Return where it stands, in one row of figures."""
        record, now_s = self.record, self._site.view.now_s()
        until_s = record.ended_s or now_s
        waits = record.state in (JobState.QUEUED, JobState.HELD)
        began_s = None if waits else record.started_s
        events: list[tuple[str, Any]] = [
            ("state", state_word(record.state)),
            ("waited", words.span((began_s or until_s) - record.submitted_s)),
            ("ran", words.UNKNOWN if began_s is None else words.span(until_s - began_s)),
            ("submitted", charts.clock(record.submitted_s)),
            ("estimated", f"{words.span(record.low_s)} – {words.span(record.high_s)}"),
            ("request", record.job.request),
            ("priority", str(record.job.priority)),
            ("attempt", str(record.attempt) if record.attempt else words.UNKNOWN),
            ("exit code", words.UNKNOWN if record.exit_code is None else str(record.exit_code)),
        ]
        shown = Markup("").join(
            Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*event) for event in events
        )
        return Markup('<dl class="details">{}</dl>').format(shown)

    # -- body -------------------------------------------------------------------------

    def body(self) -> Markup:
        """Return why it is there, what it does, and its timeline."""
        record = self.record
        entries = self._site.view.log(job_id=record.id, limit=TIMELINE_MAX)
        now_s = record.ended_s or self._site.view.now_s()
        return Markup('<div class="stack">{}{}{}{}{}</div>').format(
            card("Timeline", timeline(entries, now_s)),
            self._why(record),
            _ways(record),
            over_time(self._site.service.uses.of_job(record.id)),
            card("Events", _timeline(entries)),
        )

    def _why(self, record: JobRecord) -> Markup:
        if record.state is JobState.QUEUED:
            return card("Why not yet", self._why_not(record))
        if record.state.holds:
            return card("Why here", self._why_here(record))
        told = [record.reason or "", _slowed(record)]
        said = Markup("").join(Markup("<p>{}</p>").format(one) for one in told if one)
        return card("What happened", said) if said else Markup("")

    def _why_not(self, record: JobRecord) -> Markup:
        why = self._site.view.why_now(record.id)
        if why.refusal is None:
            return Markup("<p>It is about to start.</p>")
        first = Markup(", ").join(map(job_link, why.ahead[:AHEAD_SHOWN]))
        more = " ..." if why.ahead_count > AHEAD_SHOWN else ""
        ahead = (
            Markup("<p>{} ahead of it: {}{}</p>").format(
                words.count(why.ahead_count, "job"), first, more
            )
            if why.ahead
            else Markup("<p>It goes first.</p>")
        )
        return Markup('<p><strong>{}</strong>: {}</p><p class="soft">{}</p>{}{}').format(
            why.refusal.tier.label,
            why.refusal.reason,
            why.refusal.remedy,
            ahead,
            self._start(),
        )

    def _start(self) -> Markup:
        """Return when it is likely to start, if anything is known of that."""
        band, now_s = self.band, self._site.view.now_s()
        if band is None:
            return Markup("")
        soon, late = (
            words.coarse_span(max(0.0, at - now_s)) for at in (band.p50_s, band.p90_s)
        )
        return Markup(
            '<p>Likely to start in {}, at {} <span class="soft">(at most {}, nine times in ten)'
            "</span></p>"
        ).format(soon, charts.clock(band.p50_s), late)

    def _why_here(self, record: JobRecord) -> Markup:
        mine = [
            device
            for device in self._site.view.devices()
            if any(tenant.id == record.id for tenant in device.jobs)
        ]
        return Markup(
            '<p>On {}, where the placer of <strong>{}</strong> put it: <span class="soft">{}'
            "</span></p>{}{}"
        ).format(
            devices_of(record),
            self._site.policy,
            self._site.placer_about,
            Markup("").join(_company(device, record.id) for device in mine),
            beside_table(self._site.view.functions.sides.of_job(record.id), "functions"),
        )

    # -- output -----------------------------------------------------------------------

    def printed(self) -> Markup:
        """Return the end of what it printed."""
        record = self.record
        found = self._site.view.output(record.id, record.attempt, -LOG_BYTES, LOG_BYTES)
        if not found.data:
            return Markup('<p class="soft">Nothing yet.</p>')
        cut = Markup(
            '<p class="soft">The end of it; <code>interlane logs {}</code> has all.</p>'
        )
        told = cut.format(record.id) if found.begin else Markup("")
        return Markup("{}<pre>{}</pre>").format(told, found.data.decode("utf-8", "replace"))


def _ways(record: JobRecord) -> Markup:
    """Return how one gets to a job that runs: its terminal and its ports."""
    ways = [f"interlane port-forward {record.id} {port}" for port in record.job.ports]
    if record.job.terminal is not None:
        ways.insert(0, f"interlane attach {record.id}")
    if not ways or not record.state.holds:
        return Markup("")
    told = Markup("").join(Markup("<p><code>{}</code></p>").format(one) for one in ways)
    why = Markup('<p class="soft">For its owner and admins, from where they are.</p>')
    return card("Reach it", told + why)


def _slowed(record: JobRecord) -> str:
    """Return how much a job was slowed down in its last attempt, if that was measured."""
    measured = (record.use or {}).get("measured_slowdown")
    return "" if measured is None else f"It took {slowdown(measured)} as long as alone."


def _company(device: DeviceUse, job_id: JobId) -> Markup:
    """Return who is on a device with the job, and how all of them get on."""
    beside = [one.id for one in device.jobs if one.id != job_id]
    told = Markup(", ").join(map(job_link, beside)) if beside else "nobody"
    bound = Markup("<p>On GPU {} beside it: {}</p>{}")
    return bound.format(device.gpu, told, tenants_table(device))


# -- the timeline ------------------------------------------------------------------------

PHASES: Final = {
    JobState.HELD: "held",
    JobState.QUEUED: "waiting",
    JobState.STARTING: "starting",
    JobState.RUNNING: "running",
    JobState.GROWING: "running",
    JobState.STOPPING: "stopping",
    JobState.UNKNOWN: "unknown",
}
"""What each state is called in a timeline."""


def timeline(entries: list[LogEntry], until_s: float) -> Markup:
    """Return a job's phases, drawn to scale."""
    begin_s = entries[0].at_s
    length_s = max(until_s - begin_s, 1e-3)
    parts = []
    for phase in phases(entries, until_s):
        name, lasted_s = PHASES[phase.state], phase.end_s - phase.begin_s
        parts.append(
            Markup(
                '<rect class="phase {}" x="{:.2f}%" width="{:.2f}%" height="18">'
                "<title>{}</title></rect>"
            ).format(
                name,
                100 * (phase.begin_s - begin_s) / length_s,
                100 * lasted_s / length_s,
                f"{name} {words.span(lasted_s)}",
            )
        )
    keys = Markup("").join(
        Markup('<span class="key phase {}">{}</span>').format(name, name)
        for name in dict.fromkeys(PHASES.values())
    )
    return Markup(
        '<svg class="timeline" height="18" role="img" aria-label="Phases of the job">{}</svg>'
        '<div class="ends"><span>submitted</span><span>{} later</span></div><div>{}</div>'
    ).format(Markup("").join(parts), words.span(length_s), keys)


def _timeline(entries: list[LogEntry]) -> Markup:
    rows = [
        (clock(entry.at_s), words.kind(entry), detail(entry))
        for entry in entries
        if not entry.is_void
    ]
    head = ("when", "what", "details")
    return table(head, rows, "Everything that happened to the job", "Nothing.")
