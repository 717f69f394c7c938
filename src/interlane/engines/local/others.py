"""Folders of other servers of this host, whose attempts a server takes over.

Whoever reads there has the folder's lock, so that its own server has ended and none begins
there meanwhile: what its shims have claimed is all that will ever run from it.  Its functions
have ended with it; what they may have left behind is ended, too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from interlane.engines.local.groups import groups_here
from interlane.live import folder as state_folder
from interlane.live.folder import Holder, holder_in


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """A holder that cannot be asked."""

    why: str
    is_served: bool = False
    """Whether its own server lives on this host; it must end before anybody looks there."""


class Others:
    """Finds and holds the folders of those who held attempts before us."""

    def __init__(self, mine: Holder) -> None:
        self._mine = mine
        self._locks: dict[Path, IO[str]] = {}

    def close(self) -> None:
        """Let go of all folders."""
        for file in self._locks.values():
            file.close()
        self._locks.clear()

    def folder(self, text: str) -> Path | OutOfReach:
        """Return the folder of a holder, or why it cannot be had."""
        if not text:
            return self._mine.path  # an older version took it in, and knew no other folder
        holder = holder_in(text)
        if holder is None:
            return OutOfReach(
                f"Its record names a holder that nobody understands ({text[:80]!r})."
            )
        if not holder.is_here:
            return OutOfReach(f"It was begun by the server of {holder.place}, on another host.")
        if holder.folder == self._mine.folder or holder.path == self._mine.path:
            return self._mine.path
        return self._taken(holder)

    def _taken(self, holder: Holder) -> Path | OutOfReach:
        """Take another folder of this host; it must be the one that was meant."""
        path, begun = holder.path, f"It was begun by the server of {holder.place}"
        if path in self._locks:
            return path
        found = state_folder.read_identity(path)
        if found is None or found.folder != holder.folder:
            return OutOfReach(f"{begun}, and that folder is gone.")
        try:
            file = state_folder.lock(path)
        except OSError as error:
            return OutOfReach(f"{begun}, and that folder cannot be used ({error.strerror}).")
        if file is None:
            return OutOfReach(f"{begun}, which has not ended.", is_served=True)
        self._locks[path] = file
        groups_here(path).end_functions()
        return path
