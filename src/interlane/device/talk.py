"""What is said to people on standard error, by jobs and by the daemon."""

import sys
from contextlib import suppress


def say(what: str, who: str = "interlane") -> None:
    """Write a line; one that cannot be written is not worth a crash."""
    with suppress(OSError, ValueError):
        print(f"{who}: {what}", file=sys.stderr, flush=True)


def log(what: str) -> None:
    """Write a line of the daemon's log."""
    say(what, who="interlane daemon")
