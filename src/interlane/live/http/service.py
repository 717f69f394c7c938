"""What the routes speak to."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from interlane.live.auth import Tokens
from interlane.live.bounds import ServerBounds
from interlane.live.driver import Driver
from interlane.live.questions.desk import QuestionDesk
from interlane.live.view import View


@dataclass(frozen=True, slots=True)
class LiveService:
    """What can be seen, what can be done, and who may."""

    view: View
    driver: Driver
    """To submit, to cancel and to drain; nobody reads from it."""
    tokens: Tokens
    desk: QuestionDesk
    """For questions that take long."""
    bounds: ServerBounds = field(default_factory=ServerBounds)


async def _service(request: Request) -> LiveService:
    service: LiveService = request.app.state.service
    return service


The = Annotated[LiveService, Depends(_service)]
