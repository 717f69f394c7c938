"""The live machine's own past as a trace: ``--from-live``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from interlane.cli.client import ApiClient, ServerOptions
from interlane.cli.options import RunOptions
from interlane.model.errors import InvalidInput

MaybeTrace = Annotated[
    Path | None,
    typer.Argument(
        metavar="TRACE",
        help="Trace file, or a directory of PAI v2020 tables.",
        show_default=False,
    ),
]
FromLiveOption = Annotated[
    bool,
    typer.Option(
        "--from-live",
        help="Play what the live server ran, on its own devices, instead of a trace.",
    ),
]
DaysOption = Annotated[
    float, typer.Option("--days", min=0.001, help="With --from-live: how far back.")
]


@contextmanager
def played(
    trace: Path | None, options: RunOptions, *, from_live: bool, days: float
) -> Iterator[tuple[Path, RunOptions]]:
    """Yield the trace to be played and the options to play it with."""
    if from_live != (trace is None):
        raise InvalidInput("Give either a TRACE or --from-live, and not both.")
    if trace is not None:
        yield trace, options
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="interlane-live-") as name:
        yield _fetched(Path(name), options, days)


def _fetched(folder: Path, options: RunOptions, days: float) -> tuple[Path, RunOptions]:
    """Ask the server for what it ran and for what it has; return both as files."""
    client, trace, cluster = (
        ApiClient(ServerOptions()),
        folder / "live.csv",
        folder / "live.yaml",
    )
    text = client.get("/trace", days=days).body
    if text.count(b"\n") < 2:
        raise InvalidInput(
            f"No job was submitted within the last {days:g} days; look further back with "
            "--days."
        )
    trace.write_bytes(text)
    cluster.write_bytes(client.get("/cluster").body)
    return trace, replace(options, cluster=str(cluster))
