"""What pages stand on: the service behind them, and who looks at one."""

import asyncio
from dataclasses import dataclass

from starlette.requests import Request

from interlane.live.auth import Caller, Role
from interlane.live.http.browsers import SignIns
from interlane.live.http.service import LiveService
from interlane.live.view import View
from interlane.pages.away import Away
from interlane.pages.reports import ReportPages
from interlane.pages.sweep_index import Sweeps


@dataclass(frozen=True)
class Site:
    """Everything that pages read from."""

    service: LiveService
    policy: str
    """By which jobs are ordered and placed, in a word."""
    placer_about: str
    """What its placer prefers, in a sentence."""
    sign_ins: SignIns
    away: Away
    reports: ReportPages
    sweeps: Sweeps

    @property
    def view(self) -> View:
        """All that there is to see."""
        return self.service.view


@dataclass(frozen=True)
class Visit:
    """Somebody at a page."""

    site: Site
    request: Request

    @property
    def caller(self) -> Caller | None:
        """Who it is, as their token stands now; None once it is revoked."""
        return self.site.sign_ins.visitor(self.request)

    def insist(self, role: Role) -> Caller:
        """Return who acts, or raise unless they may."""
        return self.site.sign_ins.acting(self.request, role)

    @property
    def address(self) -> str:
        """Where they are."""
        client = self.request.client
        return "" if client is None else client.host

    async def note(self, what: str, caller: Caller, **detail: object) -> None:
        """Write into the audit log what somebody did."""
        await asyncio.to_thread(self.site.service.note, what, caller, self.address, **detail)

    def asked(self, name: str, default: str = "") -> str:
        """Return a part of the page's address."""
        return self.request.query_params.get(name, default)
