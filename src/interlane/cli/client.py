"""Which server a command speaks to; ``interlane.client`` does the speaking."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from interlane.cli.output import say_to_people
from interlane.client.client import Client
from interlane.client.connection import TIMEOUT_S, Answer, Failure, job_path, state_folder

__all__ = ["Answer", "ApiClient", "Failure", "ServerOptions", "job_path", "state_folder"]

SILENT_S: Final = 5.0
"""Seconds after which we say that we wait."""

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Address of the server (or INTERLANE_SERVER).",
        show_default="the one of the state folder",
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        "--state",
        metavar="DIR",
        help="Folder of the server's state (or INTERLANE_STATE).",
        show_default="~/.local/state/interlane",
    ),
]


CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Whom to trust instead of the system's authorities (or INTERLANE_CA).",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Which server to speak to."""

    server: ServerOption = None
    state: StateOption = None
    ca: CaOption = None


class ApiClient(Client):
    """The client of a command, which says so when the server takes its time."""

    def __init__(
        self,
        options: ServerOptions,
        *,
        timeout_s: float = TIMEOUT_S,
        silent_s: float = SILENT_S,
        say: Callable[[str], None] = say_to_people,
    ) -> None:
        super().__init__(
            options.server, state=options.state, ca=options.ca, timeout_s=timeout_s
        )
        self._silent_s, self._say = silent_s, say

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        from threading import Timer

        bound = f"at most {TIMEOUT_S:g} s; Control-C ends this"
        waits = f"still waiting for {self._url} ({bound}) ..."
        timer = Timer(self._silent_s, self._say, (waits,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
