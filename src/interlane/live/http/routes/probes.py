"""What operators and their tools look at."""

import asyncio
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from interlane.live.functions.gateway import Gateway
from interlane.live.http import prometheus as metrics
from interlane.live.http.access import PROBLEMS, Viewer, also
from interlane.live.http.problems import problem
from interlane.live.http.service import The

routes = APIRouter(tags=["probes"])


@routes.get("/healthz")
def healthz() -> Response:
    """Answer that the process lives."""
    return PlainTextResponse("ok\n")


@routes.get("/readyz", responses=also(503))
def readyz(the: The) -> Response:
    """Answer whether jobs are taken in and stored."""
    if the.driver.is_ready:
        return PlainTextResponse("ready\n")
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "The server cannot reach its database.")


@routes.get("/metrics", responses=PROBLEMS)
async def metrics_page(caller: Viewer, the: The, request: Request) -> Response:
    """Return figures in the format of Prometheus."""
    gateway: Gateway = request.app.state.functions
    shown, jobs = gateway.statuses(), gateway.sides.jobs()
    page = await asyncio.to_thread(metrics.page, the.driver, shown, jobs)
    return Response(page, media_type=metrics.MEDIA_TYPE)
