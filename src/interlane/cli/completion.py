"""What a shell offers when somebody presses tab: ids of jobs that have not ended."""

from typing import Annotated, Final

import typer

MOST: Final = 200


def open_jobs(incomplete: str) -> list[str]:
    """Return the jobs whose ids begin so; none where nobody answers."""
    from interlane.cli.client import ApiClient, ServerOptions
    from interlane.cli.ps import OPEN
    from interlane.model.errors import InterlaneError

    try:
        client = ApiClient(ServerOptions(), timeout_s=1.0)
        found = [job["id"] for job in client.pages(MOST, state=OPEN)]
    except (InterlaneError, OSError):
        return []
    return [one for one in found if one.startswith(incomplete)]


LiveJob = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The job's id, as `ps` shows it.", autocompletion=open_jobs
    ),
]
LiveJobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB...", help="Ids of jobs.", autocompletion=open_jobs),
]
