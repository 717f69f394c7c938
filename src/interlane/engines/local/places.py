"""Where a job may write: a folder to work in and one for what is temporary, its account's own.

Those of the server's own account lie in the folder of the attempt, those of other accounts in
a folder that they can reach, under a name that nobody can guess.  The folder of the attempt
with its claim, its end and its log is the server's alone.
"""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interlane.engines.local.accounts import Account
from interlane.engines.local.trees import remove_tree

WORK_NAME, TEMPORARY_NAME = "work", "tmp"
TEMPORARY: Final = "TMPDIR"
TEMPORARY_BYTES_MAX: Final = 64
"""Of a path in which programs may still put a socket of theirs."""


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """The folders of an attempt that are its job's own."""

    work: Path
    temporary: Path

    @property
    def variables(self) -> dict[str, str]:
        """Where programs put what is temporary, unless the job says otherwise."""
        told = {"HOME": str(self.work)}  # of accounts that have no other
        if len(os.fsencode(self.temporary)) <= TEMPORARY_BYTES_MAX:
            return {**told, TEMPORARY: str(self.temporary)}
        kept = os.environ.get(TEMPORARY)
        return told if kept is None else {**told, TEMPORARY: kept}


def made_places(folder: Path, account: Account | None, work: Path) -> JobPlaces:
    """Make the folders of an attempt whose folder this is."""
    if account is None:
        return _made(folder)
    home = work / secrets.token_hex(8)  # the server's: nothing in it can be replaced
    home.mkdir()
    home.chmod(0o711)
    for name in (WORK_NAME, TEMPORARY_NAME):  # whoever cleans up finds them by these
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(home / name)
    places = _made(home)
    for path in (places.work, places.temporary):
        path.chmod(0o700)
        os.chown(path, account.uid, account.gid)
    return places


def _made(folder: Path) -> JobPlaces:
    places = JobPlaces(folder / WORK_NAME, folder / TEMPORARY_NAME)
    places.work.mkdir(exist_ok=True)
    places.temporary.mkdir(exist_ok=True, mode=0o700)
    return places


def clear_temporary(folder: Path) -> None:
    """Remove what is temporary of an attempt that is over."""
    path = folder / TEMPORARY_NAME
    with suppress(FileNotFoundError):
        remove_tree(path.readlink() if path.is_symlink() else path)


def remove_places(folder: Path) -> None:
    """Remove what an attempt has outside its folder."""
    link = folder / WORK_NAME
    if link.is_symlink():
        remove_tree(link.readlink().parent)
