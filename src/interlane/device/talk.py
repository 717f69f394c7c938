"""What is said to people on standard error, by jobs and by the daemon."""

import sys
from contextlib import suppress


def say(what: str) -> None:
    """Write a line; one that cannot be written is not worth a crash."""
    with suppress(OSError, ValueError):
        print(f"interlane: {what}", file=sys.stderr, flush=True)


def log(what: str) -> None:
    """Write a line of the daemon's log."""
    with suppress(OSError, ValueError):
        print(f"interlane daemon: {what}", file=sys.stderr, flush=True)
