"""What all pages share: the frame around them, markup that stays live, and actions."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

import yaml
from markupsafe import Markup
from nicegui import ui
from nicegui.element import Element
from starlette.responses import RedirectResponse, Response

from interlane.live.auth import Caller, Role
from interlane.live.http.problems import status_of
from interlane.model import InterlaneError
from interlane.pages.front import LOGIN, LOGOUT
from interlane.pages.site import Visit

EVERY_S: Final = 2.0
"""Seconds between looks at what is shown."""

THEME_COOKIE: Final = "interlane_theme"
THEMES: Final = {"auto": None, "light": False, "dark": True}
THEME_KEPT_S: Final = 365 * 86_400

Build = Callable[[Visit], Awaitable[None]]
Make = Callable[[], Markup] | Callable[[], Awaitable[Markup]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: where it is, what it is called, who may see it, and what it shows."""

    path: str
    title: str
    build: Build
    needs: Role = Role.VIEWER
    in_menu: bool = True


class LiveMarkup(Element, component="live.js"):
    """Markup that can be shown anew without disturbing whoever reads it."""

    def __init__(self, markup: Markup, *, tag: str = "div", follow: bool = False) -> None:
        super().__init__()
        self._props |= {"is": tag, "follow": follow}
        self.show(markup)

    def show(self, markup: Markup) -> None:
        """Show other markup; only what is escaped gets here."""
        if self._props.get("markup") != markup:
            self._props["markup"] = str(markup)
            self.update()


async def open_page(visit: Visit, page: Page, menu: Sequence[Page]) -> Response | None:
    """Build a page for whoever asks."""
    caller = visit.caller
    if caller is None:
        return RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
    with _framed(visit, caller, page, menu):
        try:
            visit.insist(page.needs)
            await page.build(visit)
        except InterlaneError as error:
            _fail(error)
    return None


def _fail(error: InterlaneError) -> None:
    ui.context.client.status_code = status_of(error)
    told = Markup('<p class="alert" role="alert">{} <a href="/queue">Go to the queue</a></p>')
    LiveMarkup(told.format(error))


@contextmanager
def _framed(visit: Visit, caller: Caller, page: Page, menu: Sequence[Page]) -> Iterator[None]:
    ui.add_head_html('<link rel="stylesheet" href="/style.css">')
    theme = visit.request.cookies.get(THEME_COOKIE, "auto")
    with ui.element("div").classes("shell"):
        with ui.element("header").classes("side"):
            LiveMarkup(
                _menu(page, [one for one in menu if one.in_menu and caller.role >= one.needs])
            )
            with ui.element("div").classes("who"):
                _theme_switch(theme if theme in THEMES else "auto")
                LiveMarkup(_who(caller))
        with ui.element("div").classes("content").props('id="content" tabindex="-1"'):
            yield


def _menu(page: Page, menu: Sequence[Page]) -> Markup:
    links = Markup("").join(
        Markup('<a href="{}"{}>{}</a>').format(
            one.path, Markup(' aria-current="page"') if one is page else "", one.title
        )
        for one in menu
    )
    return Markup(
        '<a class="skip" href="#content">Skip to content</a>'
        '<a class="brand" href="/">interlane</a>'
        '<nav aria-label="Pages">{}</nav>'
    ).format(links)


def _who(caller: Caller) -> Markup:
    return Markup(
        '<form method="post" action="{}"><span>{} <span class="soft">{}</span></span> '
        '<button type="submit" class="plain">Sign out</button></form>'
    ).format(LOGOUT, caller.name, caller.role.word)


def _theme_switch(theme: str) -> None:
    dark = ui.dark_mode(THEMES[theme])
    names = list(THEMES)

    def change() -> None:
        nonlocal theme
        theme = names[(names.index(theme) + 1) % len(names)]
        dark.value = THEMES[theme]
        switch.text = f"Theme: {theme}"
        kept = f"{THEME_COOKIE}={theme};path=/;max-age={THEME_KEPT_S};samesite=strict"
        ui.run_javascript(f"document.cookie='{kept}'")

    switch = ui.button(f"Theme: {theme}", on_click=change)
    switch.props("flat dense no-caps").classes("plain")


# -- what pages are made of -----------------------------------------------------------


def title(words: str, about: str = "") -> None:
    """Show a page's heading."""
    LiveMarkup(_title(words, about))


def _title(words: str, about: str) -> Markup:
    return Markup('<h1>{}</h1><p class="soft lead">{}</p>').format(words, about)


async def live(
    visit: Visit, make: Make, every_s: float = EVERY_S, *, follow: bool = False
) -> LiveMarkup:
    """Show what a function makes, and make it again and again.

    A plain function runs in a thread, a coroutine on the server's loop.
    """
    shown = LiveMarkup(await _made(make), follow=follow)

    async def again() -> None:
        if visit.caller is None:
            ui.navigate.to(LOGIN)
            return
        try:
            shown.show(await _made(make))
        except InterlaneError as error:
            shown.show(_alert(error))

    ui.timer(every_s, again, immediate=False)
    return shown


async def _made(make: Make) -> Markup:
    if inspect.iscoroutinefunction(make):
        made: Markup = await make()
        return made
    return await asyncio.to_thread(cast("Callable[[], Markup]", make))


def action(visit: Visit, needs: Role, act: Callable[[Caller], Awaitable[None]]) -> "Handler":
    """Return a handler that acts if the visitor may, and says so if not."""

    async def handle(*_: Any) -> None:  # noqa: ANN401 - whatever the event carries
        try:
            await act(visit.insist(needs))
        except InterlaneError as error:
            ui.notify(str(error), type="negative", multi_line=True)

    return handle


Handler = Callable[[], Awaitable[None]]


def worked(
    visit: Visit, shown: LiveMarkup, meanwhile: str, work: Callable[[Caller], Awaitable[Markup]]
) -> Handler:
    """Return a handler for work that takes a while: shows what it makes, or why it could not.

    Such work is for users, as plans are in the API.
    """

    async def handle(*_: Any) -> None:  # noqa: ANN401 - whatever the event carries
        shown.show(Markup('<p role="status">{}</p>').format(meanwhile))
        try:
            shown.show(await work(visit.insist(Role.USER)))
        except InterlaneError as error:
            shown.show(_alert(error))
        except Exception:  # nobody may be left waiting for what will never come
            shown.show(_alert("The server failed at this; tell its operator."))
            raise

    return handle


def _alert(said: object) -> Markup:
    return Markup('<p class="alert" role="alert">{}</p>').format(said)


def button(words: str, handler: Handler | None = None) -> ui.button:
    """Return a button that acts at once."""
    return ui.button(words, on_click=handler).props("dense no-caps unelevated")


def confirmed(name: str, words: str, question: str, handler: Handler) -> ui.button:
    """Return a button that asks first; its name tells it from others of the same words."""
    with ui.dialog() as dialog, ui.card():
        ui.label(question)
        with ui.element("div").classes("line"):
            ui.button("Keep", on_click=dialog.close).props("dense no-caps flat")
            sure = button(words, handler).props("color=negative")
            sure.on_click(dialog.close)
    opener = ui.button(words, on_click=dialog.open).props("dense no-caps flat")
    return opener.props(f'aria-label="{attribute(name)}"')


def attribute(text: str) -> str:
    """Return a text that stays inside the quotes of an attribute."""
    return text.replace("\\", " ").replace('"', "'").replace("\n", " ")


def table(
    head: Sequence[str | Markup],
    rows: Sequence[Sequence[object]],
    caption: str,
    empty: str | Markup,
    numbers: Sequence[int] = (),
    ids: Sequence[str] = (),
) -> Markup:
    """Return a table; columns that hold numbers are set to the right.

    On a telephone every row is a card, in which each cell says what it is.  Rows with ``ids``
    are known again when the table changes.
    """
    if not rows:
        return Markup('<p class="soft">{}</p>').format(empty)
    kinds = [Markup(' class="n"') if at in numbers else Markup("") for at in range(len(head))]
    heads = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(kind, word)
        if word
        else Markup("<td></td>")  # a head without words is none
        for kind, word in zip(kinds, head, strict=True)
    )
    labels = [Markup(word).striptags() for word in head]
    named = ids or [""] * len(rows)
    body = Markup("").join(
        Markup("<tr{}>{}</tr>").format(
            Markup(' id="{}"').format(name) if name else "",
            Markup("").join(
                Markup('<td{} data-label="{}">{}</td>').format(kind, label, cell)
                for kind, label, cell in zip(kinds, labels, row, strict=True)
            ),
        )
        for name, row in zip(named, rows, strict=True)
    )
    return Markup(
        '<div class="wide"><table><caption class="unseen">{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
    ).format(caption, heads, body)


def card(heading: str, body: Markup, kind: str = "") -> Markup:
    """Return a part of a page under its own heading."""
    return Markup('<section class="card {}"><h2>{}</h2>{}</section>').format(
        kind, heading, body
    )


def as_yaml(said: Mapping[str, object]) -> Markup:
    """Return a document as its author would have written it."""
    return Markup('<pre tabindex="0">{}</pre>').format(plain_yaml(said))


def plain_yaml(said: Mapping[str, object]) -> str:
    """Return the same as text."""
    return yaml.dump(dict(said), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Keeps the lines of texts that have several."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def job_link(job_id: str) -> Markup:
    """Return a link to a job's page; a long name is cut by the style sheet."""
    return Markup('<a class="job" title="{}" href="/jobs/{}">{}</a>').format(
        job_id, quote(job_id, safe=""), job_id
    )


def more(short: object, whole: object) -> Markup:
    """Return a few words that unfold to all of them."""
    told = Markup('<details class="more"><summary>{}</summary><div>{}</div></details>')
    return told.format(short, whole)


def links(words: Mapping[str, str], chosen: str, label: str) -> Markup:
    """Return links to the same page with another choice, by address; one of them is chosen."""
    shown = Markup("").join(
        Markup('<a href="{}"{}>{}</a>').format(
            path, Markup(' aria-current="true"') if word == chosen else "", word
        )
        for word, path in words.items()
    )
    return Markup('<nav class="choices" aria-label="{}">{}</nav>').format(label, shown)


def state_word(state: str) -> Markup:
    """Return a state, coloured by the style sheet."""
    return Markup('<span class="state {}">{}</span>').format(state, state)
