"""The machine over HTTP: ``/api/v1`` and what operators look at."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from interlane import __version__
from interlane.live.functions.gateway import Gateway
from interlane.live.functions.routes import functions
from interlane.live.http.bodies import ValueLimit
from interlane.live.http.fast_path import FastPath
from interlane.live.http.feed import Feed
from interlane.live.http.gate import Gate
from interlane.live.http.news import News
from interlane.live.http.problems import answer_with_problems
from interlane.live.http.routes import audit, jobs, lines, machine, probes, tokens
from interlane.live.http.service import LiveService
from interlane.live.http.watchers import Watchers

ROUTERS: Final = (
    jobs.routes,
    lines.routes,
    machine.routes,
    tokens.routes,
    audit.routes,
    functions,
    probes.routes,
)


def make_app(service: LiveService, make_gateway: Callable[[], Gateway]) -> FastAPI:
    """Return the application; functions begin and end with it, and run on its loop."""

    @asynccontextmanager
    async def epoch(app: FastAPI) -> AsyncIterator[None]:
        loop, news = asyncio.get_running_loop(), News()
        bounds = service.bounds
        watchers = app.state.watchers = Watchers(
            service.tokens, bounds.watchers_per_token, bounds.watchers
        )
        lines = app.state.lines = Watchers(service.tokens, bounds.lines_per_token, bounds.lines)
        app.state.feed = Feed(service.view, watchers, news)
        service.driver.on_commit = lambda seq: _tell(loop, news)
        service.tokens.on_revoke = lambda: _tell(loop, watchers.revoked, lines.revoked)
        gateway = make_gateway()
        app.state.functions = service.view.functions = gateway
        await gateway.start(news.wait)
        yield
        await gateway.close()
        service.driver.on_commit = lambda seq: None
        service.tokens.on_revoke = lambda: None
        service.desk.close()

    app = FastAPI(
        title="interlane",
        version=__version__,
        lifespan=epoch,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(FastPath, state=app.state, service=service)
    app.add_middleware(ValueLimit)
    app.add_middleware(Gate, tokens=service.tokens, bounds=service.bounds, audit=service.audit)
    answer_with_problems(app)
    return app


def _tell(loop: asyncio.AbstractEventLoop, *told: News) -> None:
    for news in told:
        if not loop.is_closed():
            loop.call_soon_threadsafe(news.tell)
