"""``interlane token``: who may use the server."""

import time
from enum import StrEnum
from typing import Annotated

import typer

from interlane.cli.client import ApiClient, ServerOptions, state_folder
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, grid, say
from interlane.cli.replay import DatabaseOption

app = typer.Typer(
    help="Make, list and revoke the server's tokens.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class RoleWord(StrEnum):
    """What a token allows."""

    VIEWER = "viewer"
    USER = "user"
    ADMIN = "admin"


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
    made = ApiClient(options).post("/tokens", {"name": name, "role": role.value}).document()
    emit(made, output, made["token"])


@app.command("list")
@takes(ServerOptions)
def list_tokens(*, options: ServerOptions, output: OutputOption = OutputFormat.TABLE) -> None:
    """List tokens, without what would let anybody use them."""
    found = ApiClient(options).get("/tokens").document()
    rows = [
        (row["id"], row["name"], row["role"], "no" if row["revoked_s"] else "yes")
        for row in found["tokens"]
    ]
    emit(found, output, grid(("id", "name", "role", "valid"), rows, left=4))


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
