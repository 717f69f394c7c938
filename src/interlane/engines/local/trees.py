"""Remove what jobs leave behind, however deep it is."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path


def remove_tree(top: Path) -> None:
    """Remove a folder and all in it, as far as that can be done.

    What jobs leave may be deeper than paths are long and than calls may nest: so folders that
    are not empty are moved to the top, one after the other.  Links are removed, not followed.
    """
    names = count()
    try:
        at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        waiting = _emptied(at, at, names)
        while waiting:
            name = waiting.pop()
            with suppress(OSError):
                below = _opened(name, at)
                try:
                    waiting += _emptied(below, at, names)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=at)
    finally:
        os.close(at)
    with suppress(OSError):
        top.rmdir()


def _opened(name: str, at: int) -> int:
    """Open a folder, also one that its owner has closed to itself."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=at)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=at)
        return os.open(name, flags, dir_fd=at)


def _emptied(folder: int, top: int, names: Iterator[int]) -> list[str]:
    """Remove what is in a folder; return the folders of it that lie at the top now."""
    moved: list[str] = []
    with suppress(OSError):
        os.fchmod(folder, 0o700)
    try:
        entries = os.listdir(folder)
    except OSError:  # it takes a descriptor, of which there may be none left
        return moved
    for entry in entries:
        with suppress(OSError):
            if not stat.S_ISDIR(os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(entry, dir_fd=folder)
                continue
            with suppress(OSError):
                os.rmdir(entry, dir_fd=folder)
                continue
            name = f".removed-{secrets.token_hex(4)}-{next(names)}"
            os.rename(entry, name, src_dir_fd=folder, dst_dir_fd=top)
            moved.append(name)
    return moved
