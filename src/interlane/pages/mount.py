"""Puts the pages beside the API, in one application."""

from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from interlane.live.http.browsers import BrowserGate, FrontEnd, SignIns
from interlane.live.http.service import LiveService
from interlane.pages.away import Away
from interlane.pages.front import LOGIN, OPEN_PATHS, Entrance, no_such_page
from interlane.pages.reports import PATH, UPLOAD_BYTES_MAX, ReportPages
from interlane.pages.site import Site, Visit
from interlane.pages.sweep_index import Sweeps

RECONNECT_S: Final = 10.0
"""Seconds for which a browser that went silent finds its page again."""

BUILT_WITHIN_S: Final = 30.0
"""Seconds for which a page waits for a busy server."""


def mount(service: LiveService, api: FastAPI) -> BrowserGate:
    """Return the application of pages and API."""
    view, bounds = service.view, service.bounds
    sign_ins = SignIns(service.tokens, view.now_s, bounds, service.audit)
    away = Away(bounds.uploads_waiting, bounds.upload_memory_share)
    told = view.policy(), view.placer_about()
    reports = ReportPages(Path(service.scratch))
    site = Site(service, *told, sign_ins, away, reports, Sweeps(view))
    front_end = FrontEnd(
        LOGIN,
        OPEN_PATHS,
        Entrance(sign_ins).app,
        build=lambda: _built(site),
        beside=service.uses.follow,
        upload_bytes_max=UPLOAD_BYTES_MAX,
    )
    return BrowserGate(api, front_end, sign_ins, bounds)


def _built(site: Site) -> FastAPI:
    """Return the pages' application; loads all that they need, which takes a second."""
    from nicegui import app, ui

    from interlane.pages.catalogue import PAGES
    from interlane.pages.frame import Page, open_page

    def opener(page: Page) -> Callable[[Request], object]:
        async def opened(request: Request) -> Response | None:
            return await open_page(Visit(site, request), page, PAGES)

        return opened

    for page in PAGES:
        named = ui.page(
            page.path, title=f"{page.title} · interlane", response_timeout=BUILT_WITHIN_S
        )
        named(opener(page))
    app.get(f"{PATH}/{{name}}", include_in_schema=False)(site.reports.answer)
    app.add_exception_handler(HTTPStatus.NOT_FOUND, no_such_page)
    pages = FastAPI(openapi_url=None)
    ui.run_with(
        pages,
        title="interlane",
        favicon=_ICON,
        dark=None,
        reconnect_timeout=RECONNECT_S,
        tailwind=False,
        language="en-US",
        show_welcome_message=False,
    )
    return pages


_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><g fill="#2f6fed">'
    '<rect y="2" width="10" height="3" rx="1"/><rect x="4" y="7" width="12" height="3" rx="1"/>'
    '<rect y="12" width="7" height="3" rx="1"/></g></svg>'
)
