"""The audit log, for admins."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from interlane.live.http.access import PREFIX, PROBLEMS, Admin
from interlane.live.http.service import The

routes = APIRouter(prefix=PREFIX, responses=PROBLEMS, tags=["audit"])


@routes.get("/audit")
async def audit(
    caller: Admin,
    the: The,
    since: Annotated[float, Query(ge=0, description="Seconds since 1970.")] = 0.0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> Response:
    """Return who made tokens, signed in, was denied, deployed or changed what is others'."""
    found = await the.desk.answer(
        "audit", (since, limit), lambda: the.audit.since(since, limit)
    )
    return JSONResponse({"entries": found})
