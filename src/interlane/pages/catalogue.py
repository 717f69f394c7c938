"""All pages, in the order of the menu."""

from typing import Final

from interlane.live.auth import Role
from interlane.pages.accounts import usage
from interlane.pages.devices import devices
from interlane.pages.events import events
from interlane.pages.frame import Page
from interlane.pages.functions import functions
from interlane.pages.job import job
from interlane.pages.mig import mig
from interlane.pages.overview import overview
from interlane.pages.queue import queue
from interlane.pages.submitting import submit
from interlane.pages.sweeps import sweep, sweeps
from interlane.pages.tokens import tokens
from interlane.pages.traces import traces
from interlane.pages.whatif import whatif

PAGES: Final = (
    Page("/", "Overview", overview),
    Page("/queue", "Queue", queue),
    Page("/submit", "Submit", submit, Role.USER),
    Page("/jobs/{job_id}", "Job", job, in_menu=False),
    Page("/sweeps", "Sweeps", sweeps),
    Page("/sweeps/{name}", "Sweep", sweep, in_menu=False),
    Page("/devices", "Devices", devices),
    Page("/functions", "Functions", functions),
    Page("/usage", "Usage", usage),
    Page("/events", "Events", events),
    Page("/mig", "MIG planner", mig, Role.USER),
    Page("/whatif", "What if", whatif, Role.USER),
    Page("/traces", "Traces", traces, Role.USER),
    Page("/tokens", "Tokens", tokens, Role.ADMIN),
)
