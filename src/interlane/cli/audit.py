"""``interlane audit``: who did what on a server, and from where."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from interlane.cli.client import ApiClient, ServerOptions
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit, grid
from interlane.model import amounts

KNOWN: Final = ("at_s", "what", "actor", "address")


@takes(ServerOptions)
def audit(
    *,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only of the last so long, as in 1d.")
    ] = None,
    options: ServerOptions,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List tokens made and ended, sign-ins, denials, deployments and changes; for admins."""
    at_s = 0.0 if since is None else max(0.0, time.time() - amounts.seconds("since", since))
    found = ApiClient(options).get("/audit", since=at_s).document()
    rows = [
        (_date(one["at_s"]), one["what"], one["actor"] or "-", one["address"], _rest(one))
        for one in found["entries"]
    ]
    emit(found, output, grid(("when", "what", "who", "from", "which"), rows, left=5))


def _date(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"


def _rest(entry: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in entry.items() if name not in KNOWN)
