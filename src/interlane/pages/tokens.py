"""Tokens: who may use the machine; for admins."""

import asyncio
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup
from nicegui import ui

from interlane.live.auth import Caller, Role
from interlane.live.store.rows import TokenRow
from interlane.pages.frame import LiveMarkup, action, button, confirmed, title
from interlane.pages.site import Visit


async def tokens(visit: Visit) -> None:
    """Show tokens, make new ones and revoke old ones."""
    title("Tokens", "Who may use this machine. What is shown of a token cannot be used as one.")
    with ui.element("section").classes("card"):
        LiveMarkup(Markup("<h2>New token</h2>"))
        _maker(visit)
    with ui.element("section").classes("card"):
        _listed(visit)


def _maker(visit: Visit) -> None:
    with ui.element("div").classes("line"):
        name = ui.input("Name").props(
            f"dense outlined maxlength={visit.site.service.tokens.name_max}"
        )
        role = ui.select([one.word for one in Role], value=Role.USER.word, label="Role")
        role.props("dense outlined")

        async def make(caller: Caller) -> None:
            made = visit.site.service.tokens.make
            token, row = await asyncio.to_thread(
                made, name.value or "", Role[role.value.upper()]
            )
            said = {"token": row.id, "name": row.name, "role": row.role}
            await visit.note("token made", caller, **said)
            told = Markup('<p role="status">Shown this once: <code class="token">{}</code></p>')
            shown.show(told.format(token))
            name.value = ""
            _listed.refresh()

        button("Make token", action(visit, Role.ADMIN, make))
    shown = LiveMarkup(Markup(""))


@ui.refreshable
def _listed(visit: Visit) -> None:
    with ui.element("div").classes("wide"), ui.element("table"):
        LiveMarkup(_HEAD, tag="thead")
        with ui.element("tbody"):
            for row in visit.site.service.tokens.all():
                _row(visit, row)


_HEAD: Final = Markup("<tr>{}</tr>").format(
    Markup("").join(
        Markup('<th scope="col">{}</th>').format(word)
        for word in ("id", "name", "role", "made", "state", "")
    )
)


def _state(row: TokenRow, is_valid: bool) -> str:  # noqa: FBT001 - it says which
    if row.revoked_s is None:
        return "valid"
    return f"{'valid until' if is_valid else 'ended'} {_date(row.revoked_s)}"


def _row(visit: Visit, row: TokenRow) -> None:
    is_valid = row.is_valid(visit.site.view.now_s())
    cells = (
        Markup("<code>{}</code>").format(row.id),
        row.name,
        row.role,
        _date(row.created_s),
        _state(row, is_valid),
    )
    with ui.element("tr"):
        for cell in cells:
            LiveMarkup(Markup("{}").format(cell), tag="td")
        with ui.element("td"):
            if is_valid:
                _revoker(visit, row)


def _revoker(visit: Visit, row: TokenRow) -> None:
    async def revoke(caller: Caller) -> None:
        await asyncio.to_thread(visit.site.service.tokens.revoke, row.id)
        await visit.note("token revoked", caller, token=row.id)
        _listed.refresh()

    confirmed(
        f"Revoke {row.id} of {row.name}",
        "Revoke",
        f"{row.name} cannot use this token any more, and its sessions end. Revoke it?",
        action(visit, Role.ADMIN, revoke),
    )


def _date(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M} UTC"
