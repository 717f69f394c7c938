"""``interlane replay``: a server's log, played through fresh schedulers."""

from typing import Annotated

import typer

from interlane.cli.client import StateOption, state_folder
from interlane.cli.output import OutputFormat, OutputOption, emit

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="INTERLANE_DATABASE_URL",
        help="PostgreSQL instead of a file in the state folder: postgresql://...",
        show_default=False,
    ),
]


def replay(
    *,
    state: StateOption = None,
    database_url: DatabaseOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Play a server's log through fresh schedulers, and see if they decide the same.

    The server may run meanwhile. Exit code 1 if a decision differs; the first that does is
    told.
    """
    from interlane.usecases.replay import replay_log

    found = replay_log(state_folder(state), database_url)
    counts = (
        f"{found.events} events, {found.actions} actions, {found.starts} starts of the server"
    )
    said = "no difference." if found.difference is None else f"{found.difference}"
    older = f" {found.passed_over} older entries were passed over." if found.passed_over else ""
    emit(found.document(), output, f"{counts}: {said}{older}")
    return int(found.difference is not None)
