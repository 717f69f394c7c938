"""What operators and their tools look at.

The two probes wait for nothing: neither for a thread nor for the database.
"""

from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from interlane.live.http import prometheus
from interlane.live.http.access import PROBLEMS, Viewer, also
from interlane.live.http.problems import problem
from interlane.live.http.service import The

routes = APIRouter(tags=["probes"])


@routes.get("/healthz")
async def healthz() -> Response:
    """Answer that the process lives."""
    return PlainTextResponse("ok\n")


@routes.get("/readyz", responses=also(503))
async def readyz(the: The) -> Response:
    """Answer whether jobs are taken in and stored."""
    if the.view.is_ready:
        return PlainTextResponse("ready\n")
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "The server cannot reach its database.")


@routes.get("/metrics", responses=PROBLEMS)
async def metrics_page(caller: Viewer, the: The) -> Response:
    """Return figures in the format of Prometheus."""
    functions = the.view.functions
    shown, jobs = functions.statuses(), functions.sides.jobs()
    page = await the.desk.answer("metrics", "", lambda: prometheus.page(the.view, shown, jobs))
    return Response(page, media_type=prometheus.MEDIA_TYPE)
