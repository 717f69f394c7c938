"""What the routes speak to."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from interlane.live.auth import Tokens
from interlane.live.driver import Driver
from interlane.live.functions.gateway import FunctionSettings
from interlane.live.functions.port import Replicas
from interlane.live.questions.etas import Etas


@dataclass(frozen=True, slots=True)
class Service:
    """The machine, who may use it, and what is known beyond."""

    driver: Driver
    tokens: Tokens
    emulated: bool
    etas: Etas
    replicas: Replicas
    functions: FunctionSettings = field(default_factory=FunctionSettings)


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


The = Annotated[Service, Depends(_service)]
