"""What the routes speak to."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from interlane.server.auth import Tokens
from interlane.server.driver import Driver
from interlane.server.etas import Etas
from interlane.server.functions.gateway import FunctionSettings


@dataclass(frozen=True, slots=True)
class Service:
    """The machine, who may use it, and what is known beyond."""

    driver: Driver
    tokens: Tokens
    emulated: bool
    etas: Etas
    functions: FunctionSettings = field(default_factory=FunctionSettings)


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


The = Annotated[Service, Depends(_service)]
