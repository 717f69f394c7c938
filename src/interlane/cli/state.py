"""``interlane state``: copies of what a server keeps."""

from pathlib import Path
from typing import Annotated

import typer

from interlane.cli.client import StateOption, state_folder
from interlane.cli.output import OutputFormat, OutputOption, emit, say
from interlane.cli.replay import DatabaseOption

app = typer.Typer(
    help="Copy, put back and look through what the server keeps.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CopyArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The copy.")]


@app.command()
def backup(
    copy: CopyArgument, *, state: StateOption = None, database_url: DatabaseOption = None
) -> None:
    """Copy the database into a new file; the server may run meanwhile."""
    from interlane.usecases.state import back_up

    found = back_up(state_folder(state), copy, database_url)
    say(f"{found.path} holds {found.jobs:,} jobs and {found.entries:,} entries of the log.")


@app.command()
def restore(
    copy: CopyArgument,
    *,
    state: StateOption = None,
    database_url: DatabaseOption = None,
    of_another: Annotated[
        bool,
        typer.Option(
            "--of-another",
            help="Accept a copy of another database than the folder's, as after --begin-anew.",
        ),
    ] = False,
) -> None:
    """Put a copy in the place of the database; the server must be down.

    What was there is kept beside it. Jobs that came in after the copy was made are gone, but
    for those that run; what ran since does not run again.
    """
    from interlane.usecases.state import restore as put_back

    found = put_back(state_folder(state), copy, database_url, of_another=of_another)
    kept = "" if found.kept is None else f" What was there is in {found.kept}."
    say(f"The database holds {found.copy.jobs:,} jobs again.{kept}")


@app.command()
def check(
    *,
    state: StateOption = None,
    database_url: DatabaseOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> int:
    """Look through the database, the log and the folders of runs; exit code 1 if one is wrong.

    The server may run meanwhile.
    """
    from interlane.usecases.state import check as look_through

    found = look_through(state_folder(state), database_url)
    head = f"{found.jobs:,} jobs, {found.entries:,} entries of the log: "
    head += f"{len(found.problems)} problems." if found.problems else "all is well."
    emit(found.document(), output, "\n".join([head, *found.problems, *found.remarks]))
    return int(bool(found.problems))
