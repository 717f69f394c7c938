"""``interlane token``: who may use the server."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from interlane.cli.client import ApiClient, ServerOptions, state_folder
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say
from interlane.cli.replay import DatabaseOption

app = typer.Typer(
    help="Make, list, rotate and revoke the server's tokens.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class RoleWord(StrEnum):
    """What a token allows."""

    VIEWER = "viewer"
    USER = "user"
    ADMIN = "admin"


ExpiresOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="After so long it counts no longer, as in 30d."),
]


@app.command()
@takes(ServerOptions)
def create(
    name: Annotated[str, typer.Argument(help="Whose token; jobs carry this name.")],
    *,
    role: Annotated[RoleWord, typer.Option(help="What it allows.")] = RoleWord.USER,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline",
            help="Without the server, which must be down: by whoever owns its state folder.",
        ),
    ] = False,
    database_url: DatabaseOption = None,
    expires: ExpiresOption = None,
    same_account: Annotated[
        bool, typer.Option("--same-account", help="The name has a token: make another of it.")
    ] = False,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make a token; it is shown this once."""
    if offline:
        from interlane.usecases.state import make_token

        token = make_token(
            state_folder(options.state), name, role.value, time.time(), database_url
        )
        emit({"name": name, "role": role.value, "token": token}, output, token)
        return
    wanted = {"name": name, "role": role.value, "same_account": same_account}
    if expires is not None:
        wanted["expires"] = expires
    made = ApiClient(options).post("/tokens", wanted).document()
    emit(made, output, made["token"])


@app.command()
@takes(ServerOptions)
def rotate(
    token: Annotated[str, typer.Argument(metavar="ID", help="The token's id.")],
    *,
    expires: ExpiresOption = None,
    grace: Annotated[
        str, typer.Option(help="How long the old one counts yet, as in 1h.")
    ] = "0s",
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make another token in the place of one; it is shown this once."""
    client = ApiClient(options)
    query = {"grace": grace} if expires is None else {"grace": grace, "expires": expires}
    made = client.post(f"/tokens/{token}/rotate?{urlencode(query)}", None).document()
    _keep_own(state_folder(options.state) / "token", token, made["token"])
    emit(made, output, made["token"])


def _keep_own(file: Path, old_id: str, made: str) -> None:
    """Write the new token where the old one lay, if it was the one of the state folder."""
    with suppress(OSError):
        if file.read_text().startswith(f"il_{old_id}_"):
            beside = file.with_name(f"{file.name}.new")
            with os.fdopen(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
            ) as it:
                it.write(made)
            beside.replace(file)


@app.command("list")
@takes(ServerOptions)
def list_tokens(*, options: ServerOptions, output: OutputOption = OutputFormat.TABLE) -> None:
    """List tokens, without what would let anybody use them."""
    found = ApiClient(options).get("/tokens").document()
    rows = [
        (row["id"], row["name"], row["role"], "yes" if row["valid"] else "no", _ends(row))
        for row in found["tokens"]
    ]
    emit(found, output, grid(("id", "name", "role", "valid", "until"), rows, left=5))


def _ends(row: Mapping[str, Any]) -> str:
    if row["revoked_s"] is None:
        return "-"
    return f"{datetime.fromtimestamp(row['revoked_s'], UTC):%Y-%m-%d %H:%M} UTC"


@app.command()
@takes(ServerOptions)
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="The token's id.")],
    *,
    options: ServerOptions,
) -> None:
    """Let a token count no longer."""
    ApiClient(options).delete(f"/tokens/{token}")
    say(f"{token} revoked")
