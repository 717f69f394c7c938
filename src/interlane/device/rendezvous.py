"""Where the daemon and its jobs meet: a socket in a directory closed to other users."""

import fcntl
import os
import socket
import stat
import struct
from collections.abc import Collection, Container
from pathlib import Path
from typing import Final

from interlane.model.errors import InvalidField, InvalidInput

SOCKET_VARIABLE: Final = "INTERLANE_SHARE_SOCKET"
USERS: Final = ".users"
"""How the file ends that says whom else a daemon serves."""
SOCKET_PATH_BYTES: Final = 103
"""What the kernel can hold of a socket's path, less an ending."""
EVERYBODY: Final = "*"
"""What that file says where whoever gets to the socket is served."""
_CREDENTIALS: Final = struct.Struct("iII")


def socket_path(given: Path | None = None) -> Path:
    """Return the path of the daemon's socket: as given, from the environment, or our own."""
    named = given or os.environ.get(SOCKET_VARIABLE)
    path = Path(named).absolute() if named else _own_directory() / "share.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        rule = f"a socket's path has at most {SOCKET_PATH_BYTES} bytes; take a shorter one"
        raise InvalidField("--socket", str(path), rule)
    return path


def make_directory(path: Path) -> None:
    """Make a directory for sockets and journals, and refuse one that others can write to."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = path.stat()
    if seen.st_uid != os.getuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidInput(
            f"{path} belongs to user {seen.st_uid}, mode {stat.filemode(seen.st_mode)}, but "
            "the daemon's directory must be yours and closed to others; name another with "
            "--socket."
        )


def admit_users(path: Path, uids: Collection[int], *, everybody: bool = False) -> None:
    """Say whom else the daemon at a socket is to serve; they get to the socket, and no more."""
    file = path.with_suffix(USERS)
    if not uids and not everybody:
        file.unlink(missing_ok=True)
        return
    file.write_text(EVERYBODY if everybody else " ".join(map(str, sorted(uids))))
    file.chmod(0o600)
    path.parent.chmod(0o711)
    if path.exists():
        path.chmod(0o666)


class _Everybody:
    """Holds every user."""

    def __contains__(self, uid: object) -> bool:
        return True


def served_users(path: Path) -> Container[int]:
    """Return whom a daemon serves: its own user, root, and those that it was told of."""
    try:
        words = path.with_suffix(USERS).read_text().split()
    except OSError:
        words = []
    if words == [EVERYBODY]:
        return _Everybody()
    return frozenset({os.getuid(), 0, *(int(word) for word in words if word.isdigit())})


def strangers_folder(path: Path) -> str | None:
    """Say who else could put a socket into a folder; None if nobody but us and root can.

    In a folder that everybody may write to, such as the temporary one, each owns what they
    put there: then it is the socket's owner that matters.
    """
    try:
        seen = path.stat()
    except OSError:
        return None  # there is no socket either
    if seen.st_uid not in (os.getuid(), 0):
        return f"user {seen.st_uid}"
    is_open = seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if is_open and not seen.st_mode & stat.S_ISVTX:
        return f"whoever may write to {path}"
    return None


def _own_directory() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "interlane" if base else Path(f"/tmp/interlane-{os.getuid()}")


def only_daemon(path: Path) -> tuple[int, bool]:
    """Lock the place for this daemon; tell, too, whether there has never been one here."""
    lock = path.with_suffix(".lock")
    is_first = not lock.exists()
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InvalidInput(
            f"a device daemon runs at {path} already; stop it, or name another --socket."
        ) from None
    return descriptor, is_first


def listening(path: Path) -> socket.socket:
    """Listen; the path appears when somebody answers there, and not before."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    is_alone = not path.with_suffix(USERS).exists()
    before = os.umask(0o177 if is_alone else 0o111)
    try:
        listener.bind(str(fresh))
    finally:
        os.umask(before)
    listener.listen(1024)
    listener.setblocking(False)
    fresh.replace(path)
    return listener


def credentials(line: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end, as the kernel knows them."""
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(told)
    return pid, uid
