"""One process at a time changes the GPUs of a host, whatever journals they keep."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlane.mig.transition.nvidia import PROGRAM
from interlane.model import InvalidInput


@contextmanager
def host_locked() -> Iterator[None]:
    """Hold the GPUs of this host, or say that somebody else does.

    The lock is on the program that cuts them, which containers of one host share.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        yield  # the first command says so
        return
    with Path(program).open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(
                "Another process changes the GPUs of this host; let it finish."
            ) from None
        yield
