"""What the routes speak to."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from interlane.live.auth import Tokens
from interlane.live.driver import Driver
from interlane.live.view import View


@dataclass(frozen=True, slots=True)
class LiveService:
    """What can be seen, what can be done, and who may."""

    view: View
    driver: Driver
    """To submit, to cancel and to drain; nobody reads from it."""
    tokens: Tokens


async def _service(request: Request) -> LiveService:
    service: LiveService = request.app.state.service
    return service


The = Annotated[LiveService, Depends(_service)]
