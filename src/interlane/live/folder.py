"""The folder in which a server keeps things: who it is, who has it, and who may read it.

A folder draws an id when it is first used, and ``identity.json`` keeps it, with the database
that its runs are on record in.  A copy of a folder is another folder: it draws an id of its
own, because what runs from the first does not run from the copy.
"""

import fcntl
import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, Final

from interlane.model import InvalidInput

IDENTITY_FILE: Final = "identity.json"
LOCK_FILE: Final = "lock"
FORMAT: Final = 1
ID_BYTES: Final = 8
PRIVATE: Final = 0o700
OTHERS: Final = 0o077
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a folder says of itself."""

    folder: str
    inode: int
    """Of the folder; that of a copy is another."""
    database: str | None = None
    """Id of the database that it was used with; None before the first."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds an attempt: a folder of a host."""

    host: str
    boot: str
    """Differs after every start of the host; empty where nobody tells."""
    folder: str
    path: Path

    def __str__(self) -> str:
        return f"{self.host}|{self.boot}|{self.folder}|{self.path}"

    @property
    def place(self) -> str:
        """What people call it."""
        return f"{self.host}:{self.path}"

    @property
    def is_here(self) -> bool:
        """Whether it is on this host, so that locks and processes tell the truth about it."""
        return self.host == socket.gethostname() or (self.boot != "" and self.boot == _boot())


def holder_in(text: str) -> Holder | None:
    """Return the holder that a record names; None if nothing can be made of it."""
    parts = text.split("|", 3)
    return Holder(parts[0], parts[1], parts[2], Path(parts[3])) if len(parts) == 4 else None


def holder_of(state: Path) -> Holder:
    """Return what holds whatever runs from a folder; a new one is made and gets its id."""
    prepare(state)
    return Holder(socket.gethostname(), _boot(), identified(state).folder, state.resolve())


def prepare(state: Path) -> None:
    """Make the folder, for its owner alone; one that others may enter is closed to them."""
    state.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    mode = state.stat().st_mode
    if mode & OTHERS:
        try:
            state.chmod(mode & PRIVATE)
        except PermissionError:
            raise InvalidInput(
                f"{state} is open to others and is not yours to close; name another folder "
                "with --state."
            ) from None


def close_to_others(state: Path) -> None:
    """Take the files that a server keeps away from everybody but its owner."""
    for path in state.iterdir():
        with suppress(FileNotFoundError, PermissionError):
            if path.is_file() and not path.is_symlink() and path.stat().st_mode & OTHERS:
                path.chmod(path.stat().st_mode & PRIVATE)


def identified(state: Path) -> Identity:
    """Return who a folder is; a new one, and a copy of another, gets an id."""
    found = read_identity(state)
    inode = state.stat().st_ino
    if found is not None and found.inode == inode:
        return found
    database = None if found is None else found.database
    made = Identity(token_hex(ID_BYTES), inode, database)
    _write(state, made)
    return made


def read_identity(state: Path) -> Identity | None:
    """Return what a folder says of itself; None if it says nothing that can be understood."""
    try:
        said: Mapping[str, Any] = json.loads((state / IDENTITY_FILE).read_text())
        return Identity(str(said["folder"]), int(said["inode"]), said.get("database"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note_database(state: Path, database: str | None) -> None:
    """Note which database the runs of a folder are on record in."""
    known = identified(state)
    if known.database != database:
        _write(state, replace(known, database=database))


def lock(state: Path) -> "IO[str] | None":
    """Hold a folder for as long as the file is open; None if a server has it."""
    file = os.fdopen(os.open(state / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600), "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    beside = path.with_name(f"{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # else a loss of power may leave the file under no name
    finally:
        os.close(folder)


def _write(state: Path, identity: Identity) -> None:
    write_private(state / IDENTITY_FILE, json.dumps({"format": FORMAT, **asdict(identity)}))


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
