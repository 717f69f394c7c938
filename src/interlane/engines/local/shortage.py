"""What a machine may lack for a moment: no fault of the job that was to start.

Such an attempt never began, and whoever asked for it tries again later.
"""

import errno
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from interlane.engines.local import shim
from interlane.model import InterlaneError

WORDS: Final[Mapping[int, str]] = {
    errno.EMFILE: "file descriptors of the server",
    errno.ENFILE: "open files",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
    errno.ENOSPC: "room on the disk",
    errno.EDQUOT: "room on the disk",
}
assert set(WORDS) == set(shim.SHORTAGES)

RESERVED: Final = 32
"""Descriptors that are kept for starting jobs when everything else has used all others."""


class MachineLacks(InterlaneError):
    """The machine lacks something that it will have again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"This machine lacks {what} at the moment.")
        self.what = what


def lacking(error: Exception) -> str | None:
    """Return what the machine lacks; None if that is not what is wrong."""
    if isinstance(error, MachineLacks):
        return error.what
    return WORDS.get(error.errno or 0) if isinstance(error, OSError) else None


class Descriptors:
    """As many descriptors as the system allows, and some of them for starting jobs alone."""

    def __init__(self) -> None:
        self.soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        """As it was before; jobs get that again."""
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._kept: list[int] = []
        self._keep()

    @contextmanager
    def for_a_start(self) -> Iterator[None]:
        """Let go of what is kept while a job is started."""
        self._let_go()
        try:
            yield
        finally:
            self._keep()

    def close(self) -> None:
        """Keep nothing any more."""
        self._let_go()

    def _keep(self) -> None:
        with suppress(OSError):  # fewer then, until somebody gives some back
            while len(self._kept) < RESERVED:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _let_go(self) -> None:
        while self._kept:
            os.close(self._kept.pop())
