"""What the routes speak to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Request

from interlane.live.audit import AuditLog
from interlane.live.auth import Caller, Tokens
from interlane.live.bounds import ServerBounds
from interlane.live.driver import Driver
from interlane.live.measure.use_history import UseHistory
from interlane.live.questions.desk import QuestionDesk, TooManyQuestions
from interlane.live.view import View
from interlane.model import JobId
from interlane.predict.starts import StartBand

OPEN_MAX: Final = 2_000
"""With more open jobs than this, only a question about one job says when it may start."""


@dataclass(frozen=True, slots=True)
class LiveService:
    """What can be seen, what can be done, and who may."""

    view: View
    driver: Driver
    """To submit, to cancel and to drain; nobody reads from it."""
    tokens: Tokens
    desk: QuestionDesk
    """For questions that take long."""
    bounds: ServerBounds
    audit: AuditLog
    scratch: str
    """A folder for what need not outlive the server."""
    uses: UseHistory
    """What devices and jobs were seen to do over time."""

    def note(self, what: str, caller: Caller, address: str, **detail: object) -> None:
        """Write into the audit log what somebody did."""
        self.audit.note(what, caller.name, address, **detail)

    async def starts(self, job_ids: Sequence[JobId]) -> Mapping[JobId, StartBand]:
        """Return when jobs are likely to start, as found lately; takes its time."""
        asked = tuple(job_ids)
        if not asked or (len(asked) != 1 and len(self.view.open_jobs()) > OPEN_MAX):
            return {}
        try:
            return await self.desk.answer("eta", asked, lambda: self.view.starts(asked))
        except TooManyQuestions:
            return {}


async def _service(request: Request) -> LiveService:
    service: LiveService = request.app.state.service
    return service


The = Annotated[LiveService, Depends(_service)]


async def _address(request: Request) -> str:
    return address_of(request.scope)


def address_of(scope: Any) -> str:  # noqa: ANN401 - ASGI
    """Return where a request comes from."""
    client = scope.get("client")
    return "" if client is None else str(client[0])


Address = Annotated[str, Depends(_address)]
