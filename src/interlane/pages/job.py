"""A job: its life so far, why it is where it is, and what it prints."""

import asyncio
from typing import Any, Final

from markupsafe import Markup
from nicegui import ui

from interlane.live.auth import Caller, Role
from interlane.live.http.documents import shown_spec
from interlane.live.measure.occupancy import DeviceUse
from interlane.live.store.record import JobRecord
from interlane.metrics.phases import phases
from interlane.model import (
    Grow,
    GrowFailed,
    JobId,
    LogEntry,
    Placement,
    Preempt,
    Recovered,
    Refuse,
    Requeue,
    Start,
    StartFailed,
)
from interlane.model.lifecycle import JobState
from interlane.pages import words
from interlane.pages.devices import beside_table, slowdown, tenants_table
from interlane.pages.frame import (
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
from interlane.pages.queue import devices_of, place_words, start_words
from interlane.pages.site import Site, Visit

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
    if record.is_open:
        if _may_cancel(visit, record):
            _canceller(visit, record)
        _keep_starts_fresh(visit, view)
    await live(visit, view.body)
    LiveMarkup(Markup('<h2 id="log">Output</h2>'))
    printed = await live(visit, view.printed, LOG_EVERY_S, follow=True)
    printed.classes("log").props('tabindex="0" role="log" aria-labelledby="log"')
    caller = visit.caller
    whole = caller is not None and caller.owns(record.user)
    LiveMarkup(card("As submitted", as_yaml(shown_spec(record.job.document, whole=whole))))


def _may_cancel(visit: Visit, record: JobRecord) -> bool:
    return visit.caller is not None and visit.caller.may_cancel(record)


def _canceller(visit: Visit, record: JobRecord) -> None:
    async def cancel(caller: Caller) -> None:
        now = await asyncio.to_thread(visit.site.view.job, record.id)
        caller.insist_may_cancel(now)
        await asyncio.wrap_future(visit.site.service.driver.cancel(record.id, caller.name))
        if record.user != caller.name:
            await visit.note("job cancelled", caller, job=record.id, of=record.user)

    confirmed(
        f"Cancel {record.id}",
        "Cancel job",
        f"{record.id} leaves the queue, or is stopped if it runs. Cancel it?",
        action(visit, Role.USER, cancel),
    )


def _keep_starts_fresh(visit: Visit, view: "_View") -> None:
    async def play() -> None:
        if visit.caller is not None and view.record.state is JobState.QUEUED:
            view.starts_in = await view.start()

    ui.timer(5.0, play)


class _View:
    """What is shown of a job now."""

    def __init__(self, site: Site, job_id: JobId) -> None:
        self._site = site
        self._id = job_id
        self.starts_in = words.UNKNOWN

    @property
    def record(self) -> JobRecord:
        """The job as it stands."""
        return self._site.view.job(self._id)

    async def start(self) -> str:
        """Return when it is likely to start; takes its time."""
        found = (await self._site.starts.bands([self._id])).get(self._id)
        return start_words(found, self._site.view.now_s())

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
            ("estimated", f"{words.span(record.low_s)} – {words.span(record.high_s)}"),
            ("asks", words.gpus(self._site.view.asked_milli(record))),
            ("attempt", str(record.attempt) if record.attempt else words.UNKNOWN),
            ("exit code", words.UNKNOWN if record.exit_code is None else str(record.exit_code)),
        ]
        shown = Markup("").join(
            Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*event) for event in events
        )
        return Markup('<dl class="details">{}</dl>').format(shown)

    # -- body -------------------------------------------------------------------------

    def body(self) -> Markup:
        """Return its timeline, why it is there, and its timeline."""
        record = self.record
        entries = self._site.view.log(job_id=record.id, limit=TIMELINE_MAX)
        now_s = record.ended_s or self._site.view.now_s()
        return Markup('<div class="stack">{}{}{}</div>').format(
            card("Timeline", timeline(entries, now_s)),
            self._why(record),
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
        return Markup(
            '<p><strong>{}</strong>: {}</p><p class="soft">{}</p>{}<p>Likely to start in {} '
            '<span class="soft">(as likely as not – nine times in ten)</span></p>'
        ).format(
            why.refusal.tier.label,
            why.refusal.reason,
            why.refusal.remedy,
            ahead,
            self.starts_in,
        )

    def _why_here(self, record: JobRecord) -> Markup:
        mine = [
            device
            for device in self._site.view.devices()
            if any(tenant.id == record.id for tenant in device.jobs)
        ]
        return Markup("<p>On {}, chosen by <strong>{}</strong>.</p>{}{}").format(
            devices_of(record),
            self._site.policy,
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
    begin_s = entries[0].at_s
    rows = [
        (f"+ {words.span(entry.at_s - begin_s)}", words.kind(entry), _detail(entry))
        for entry in entries
        if not entry.is_void
    ]
    return table(("when", "what", ""), rows, "Everything that happened to the job", "Nothing.")


def _detail(entry: LogEntry) -> str:
    detail = entry.detail
    match entry.what:
        case (
            Start(_, placement) | Grow(_, placement) | Recovered(_, _, Placement() as placement)
        ):
            return f"on {place_words(placement)}"
        case Preempt(_, in_favour_of):
            return f"it makes way for job {in_favour_of}"
        case Requeue(_, why) | StartFailed(_, why) | GrowFailed(_, why):
            return why
        case Refuse(_, refusal):
            return str(refusal)
        case _ if detail.get("cancelled_by"):
            return f"by {detail['cancelled_by']}"
        case _ if detail.get("reason"):
            return str(detail["reason"])
        case _:
            code = detail.get("exit_code")
            return "" if code is None else f"exit code {code}"
