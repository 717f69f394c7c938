"""Paths on the disk of a simulated machine."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import PurePosixPath

from interlane.testing.simulated.calls import File, _proc, on, open_file, posix
from interlane.testing.simulated.disk import Node, fault
from interlane.testing.simulated.ends import OpenedFile


class DiskPath(PurePosixPath):
    """What ``pathlib.Path`` is elsewhere."""

    __slots__ = ()

    def _node(self) -> Node:
        return on.machine.disk.get(str(self))

    def exists(self) -> bool:
        """Tell whether something lies there."""
        return posix.exists(self)

    def is_dir(self) -> bool:
        """Tell whether a folder lies there."""
        on.machine.enter()
        node = on.machine.disk.find(str(self))
        return node is not None and node.is_folder

    def is_file(self) -> bool:
        """Tell whether a file lies there."""
        on.machine.enter()
        node = on.machine.disk.find(str(self))
        return node is not None and not node.is_folder

    def is_symlink(self) -> bool:
        """Tell that nothing is: there are none here."""
        return False

    def resolve(self) -> "DiskPath":
        """Return the path: it is what it is."""
        return self

    absolute = resolve

    def stat(self) -> os.stat_result:
        """Return what the system knows of it; what a process has open is looked up there."""
        on.machine.enter()
        if self.parts[:2] == ("/", "proc") and self.parts[3:4] == ("fd",):
            process = on.machine.processes.get(int(self.parts[2]))
            end = None if process is None else process.ends.get(int(self.parts[4]))
            if end is None:
                raise fault(errno.ENOENT, str(self))
            return (end.node if isinstance(end, OpenedFile) else Node(0)).stat()
        return self._node().stat()

    def chmod(self, mode: int) -> None:
        """Set its mode."""
        on.machine.enter()
        self._node().mode = mode & 0o777

    def mkdir(
        self, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False
    ) -> None:
        """Make a folder."""
        on.machine.enter("make")
        disk = on.machine.disk
        if parents:
            for above in reversed(self.parents):
                if disk.find(str(above)) is None:
                    disk.make(str(above), is_folder=True)
        if disk.find(str(self)) is not None:
            if not exist_ok:
                raise fault(errno.EEXIST, str(self))
            return
        disk.make(str(self), is_folder=True).mode = mode

    def open(self, mode: str = "r") -> File:
        """Open it."""
        file = open_file(self, mode)
        assert isinstance(file, File)
        return file

    def read_bytes(self) -> bytes:
        """Return what it holds."""
        on.machine.enter("open")
        known = _proc(str(self))
        if known is not None:
            return known
        node = self._node()
        if node.is_folder:
            raise fault(errno.EISDIR, str(self))
        return bytes(node.data)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return what it holds."""
        return self.read_bytes().decode(encoding, errors)

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Write it anew."""
        with self.open("w") as file:
            return file.write(text)

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001 - as it is there
        """Remove it."""
        try:
            posix.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Remove an empty folder."""
        posix.rmdir(str(self))

    def rename(self, other: "DiskPath") -> "DiskPath":
        """Move it."""
        posix.replace(str(self), str(other))
        return other

    replace = rename

    def touch(self) -> None:
        """Make it if it is not there."""
        self.open("a").close()

    def iterdir(self) -> "Iterator[DiskPath]":
        """Yield what lies in it."""
        on.machine.enter()
        text = str(self)
        if self.parts[:2] == ("/", "proc"):
            if len(self.parts) == 2:
                return iter([self / str(pid) for pid in on.machine.processes])
            process = on.machine.processes.get(int(self.parts[2]))
            if process is None:
                raise fault(errno.ENOENT, text)
            return iter([self / str(number) for number in process.ends])
        return iter([self / name for name in sorted(on.machine.disk.folder(text))])

    def glob(self, pattern: str) -> "Iterator[DiskPath]":
        """Yield what lies below it and is called so."""
        first, _, rest = pattern.partition("/")
        node = on.machine.disk.find(str(self))
        if node is None or not node.is_folder:
            return
        for found in self.iterdir():
            if fnmatch(found.name, first):
                if rest:
                    yield from found.glob(rest)
                else:
                    yield found


class Paths:
    """The module ``pathlib``."""

    Path = DiskPath


class DiskTrees:
    """``engines.local.trees``, whose descriptors of folders are not simulated."""

    def remove_tree(self, top: DiskPath) -> None:
        """Remove a folder with all that is in it, one thing after another."""
        with suppress(OSError):
            for below in top.iterdir():
                if below.is_dir():
                    self.remove_tree(below)
                else:
                    below.unlink()
            top.rmdir()
