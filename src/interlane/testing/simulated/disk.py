"""A disk: files and folders in memory, what of them a loss of power leaves, and locks."""

import errno
import os
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

DEVICE: Final = 1


def fault(number: int, path: str = "") -> OSError:
    """Return the error that the system raises under a number."""
    return OSError(number, os.strerror(number), path or None)


@dataclass(eq=False, slots=True)
class Node:
    """A file or a folder."""

    number: int
    entries: "dict[str, Node] | None" = None
    """None for a file."""
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    """What a loss of power leaves for certain of a file."""
    synced_entries: "dict[str, Node]" = field(default_factory=dict)
    """And of a folder."""
    changed_s: float = 0.0
    mode: int = 0o700
    exclusive: object | None = None
    """Who has locked it."""
    shared: set[object] = field(default_factory=set)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.entries is not None

    def sync(self) -> None:
        """Let a loss of power leave it as it is now."""
        if self.entries is None:
            self.synced = bytes(self.data)
        else:
            self.synced_entries = dict(self.entries)

    def stat(self) -> os.stat_result:
        """Return what ``stat`` says of it."""
        mode = (0o040000 if self.is_folder else 0o100000) | self.mode
        at_s = self.changed_s
        return os.stat_result(
            (mode, self.number, DEVICE, 1, os.getuid(), 0, len(self.data), at_s, at_s, at_s)
        )


class Disk:
    """Files by path; every path is absolute."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._numbers = count(2)
        self._root = self._new(is_folder=True)
        self.now_s = 0.0

    def _new(self, *, is_folder: bool) -> Node:
        node = Node(next(self._numbers), {} if is_folder else None)
        return node

    def find(self, path: str) -> Node | None:
        """Return what lies at a path, if anything does."""
        node = self._root
        for name in path.split("/"):
            if name:
                if node.entries is None:
                    raise fault(errno.ENOTDIR, path)
                found = node.entries.get(name)
                if found is None:
                    return None
                node = found
        return node

    def get(self, path: str) -> Node:
        """Return what lies at a path, or raise."""
        node = self.find(path)
        if node is None:
            raise fault(errno.ENOENT, path)
        return node

    def folder(self, path: str) -> dict[str, Node]:
        """Return what lies in a folder."""
        node = self.get(path)
        if node.entries is None:
            raise fault(errno.ENOTDIR, path)
        return node.entries

    def _place(self, path: str) -> tuple[dict[str, Node], str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self.folder(above), name

    def make(self, path: str, *, is_folder: bool, is_new: bool = True) -> Node:
        """Make a file or a folder; one that is there already is an error if it must be new."""
        entries, name = self._place(path)
        found = entries.get(name)
        if found is not None:
            if is_new:
                raise fault(errno.EEXIST, path)
            return found
        entries[name] = node = self._new(is_folder=is_folder)
        node.changed_s = self.now_s
        return node

    def link(self, path: str, other: str) -> None:
        """Give a file another name, which must be new."""
        node = self.get(path)
        entries, name = self._place(other)
        if name in entries:
            raise fault(errno.EEXIST, other)
        entries[name] = node

    def rename(self, path: str, other: str) -> None:
        """Move a file or a folder; what has the name by now is replaced."""
        node = self.get(path)
        entries, name = self._place(other)
        there = entries.get(name)
        if there is not None and there.entries:
            raise fault(errno.ENOTEMPTY, other)
        entries[name] = node
        before, old = self._place(path)
        del before[old]

    def remove(self, path: str, *, is_folder: bool = False) -> None:
        """Remove a file, or a folder that is empty."""
        entries, name = self._place(path)
        node = entries.get(name)
        if node is None:
            raise fault(errno.ENOENT, path)
        if node.is_folder != is_folder:
            raise fault(errno.EISDIR if node.is_folder else errno.ENOTDIR, path)
        if node.entries:
            raise fault(errno.ENOTEMPTY, path)
        del entries[name]

    def sync(self, node: Node, path: str) -> None:
        """Let a loss of power leave it as it is now, and the folders on the way to it.

        Those are not asked for, but file systems with a journal do it.
        """
        node.sync()
        above = self._root
        for name in path.split("/"):
            below = (above.entries or {}).get(name)
            if below is not None:
                above.synced_entries[name] = below
                above = below

    def lose_power(self) -> None:
        """Leave what was synced; of everything else, what chance leaves."""
        self._forget(self._root)

    def _forget(self, node: Node) -> None:
        node.exclusive, node.shared = None, set()
        if node.entries is None:
            if bytes(node.data) != node.synced:
                kept = self._rng.choice((0, len(node.data) // 2, len(node.data)))
                is_longer = bytes(node.data[: len(node.synced)]) == node.synced
                left = max(kept, len(node.synced)) if is_longer else kept
                node.data = bytearray(node.data[:left])
            node.sync()
            return
        for name in sorted({*node.entries, *node.synced_entries}):
            now, before = node.entries.get(name), node.synced_entries.get(name)
            if now is not before and self._rng.random() < 0.5:
                if before is None:
                    del node.entries[name]
                else:
                    node.entries[name] = before
        node.sync()
        for below in node.entries.values():
            self._forget(below)
