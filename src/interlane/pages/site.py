"""What pages stand on: the service behind them, and who looks at one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from fastapi import FastAPI
from starlette.requests import Request

from interlane.kernel.scheduler import Scheduler
from interlane.live.auth import Caller, Denied, Role, insist
from interlane.live.driver import Driver, NoSuchJob, NotReady
from interlane.live.functions.gateway import Gateway
from interlane.live.http.service import Service
from interlane.live.store.record import Record
from interlane.pages.away import Away
from interlane.pages.front import SECRET
from interlane.pages.history import History
from interlane.pages.reports import Reports
from interlane.pages.sessions import Sessions
from interlane.pages.starts import Starts
from interlane.pages.usage import Usage

ANSWER_S: Final = 10.0
"""Seconds within which the driver answers, unless it is far too busy."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Site:
    """Everything that pages read from."""

    service: Service
    policy: str
    """By which jobs are ordered and placed, in a word."""
    sessions: Sessions
    history: History
    starts: Starts
    usage: Usage
    api: FastAPI
    away: Away = field(default_factory=Away)
    reports: Reports = field(default_factory=Reports)

    @property
    def driver(self) -> Driver:
        """Who runs the machine."""
        return self.service.driver

    @property
    def gateway(self) -> Gateway:
        """Who runs functions; speak to it on the server's loop only."""
        gateway: Gateway = self.api.state.functions
        return gateway

    def ask(self, question: Callable[[Scheduler, float], Answer]) -> Answer:
        """Ask the kernel, and wait for the answer; for threads that may wait."""
        try:
            answer: Answer = self.driver.ask(question).result(ANSWER_S)
        except TimeoutError:
            raise NotReady("The server is too busy to answer this; try again.") from None
        return answer

    def record(self, job_id: str) -> Record:
        """Return a job, whether it has ended or not."""
        record = self.driver.open_record(job_id) or self.driver.store.job(job_id)
        if record is None:
            raise NoSuchJob(f"There is no job {job_id!r}; the queue lists all.")
        return record


@dataclass(frozen=True)
class Visit:
    """Somebody at a page."""

    site: Site
    request: Request

    @property
    def caller(self) -> Caller | None:
        """Who it is, as their token stands now; None once it is revoked."""
        return self.site.sessions.caller(self.request.scope[SECRET])

    def insist(self, role: Role) -> Caller:
        """Return who acts, or raise unless they may."""
        caller = self.caller
        if caller is None:
            raise Denied("Your session is over; sign in again.")
        insist(caller, role)
        return caller

    def asked(self, name: str, default: str = "") -> str:
        """Return a part of the page's address."""
        return self.request.query_params.get(name, default)
