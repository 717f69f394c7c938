"""How far a long command has come, on stderr: a bar on a terminal, else a line at times."""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Final

from interlane.cli.output import say

if TYPE_CHECKING:
    from interlane.usecases.reporter import Tell

LINE_EVERY_S: Final = 15.0
"""Seconds between lines where there is no terminal."""

MOMENT_S: Final = 2.0
"""Seconds after which people wonder."""


@contextmanager
def progress(what: str, total: int, unit: str = "jobs") -> "Iterator[Tell]":
    """Show how far a command has come; yields the function to tell."""
    if sys.stderr.isatty():
        with _bar(what, total, unit) as tell:
            yield tell
    else:
        yield _lines(what, total, unit)


@contextmanager
def _bar(what: str, total: int, unit: str) -> "Iterator[Tell]":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Things done per second."""

        def render(self, task: Task) -> Text:
            rate = task.finished_speed or task.speed
            return Text("" if rate is None else f"{rate:,.0f} {unit}/s")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def tell(done: int, total: int | None = None) -> None:
            bar.update(task, completed=done, total=total)

        yield tell


@contextmanager
def saying_if_slow(what: str) -> Iterator[None]:
    """Say what is going on if it takes longer than a moment; for work without steps."""
    timer = Timer(MOMENT_S, say, (what,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _lines(what: str, expected: int, unit: str) -> "Tell":
    begin_s = last_s = time.monotonic()

    def tell(done: int, total: int | None = None) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        total = total or expected
        if now_s - last_s < LINE_EVERY_S or not done:
            return
        last_s = now_s
        rate = done / (now_s - begin_s)
        left_s = (total - done) / rate
        say(f"{what}: {done:,} of {total:,} {unit}, {rate:,.0f}/s, about {left_s:,.0f} s left")

    return tell


class Terminal:
    """Tells people on stderr how far a use case has come."""

    def note(self, sentence: str) -> None:
        """Say it."""
        say(sentence)

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Say it if it takes longer than a moment."""
        return saying_if_slow(what)

    def steps(
        self, what: str, total: int, unit: str = "jobs"
    ) -> "AbstractContextManager[Tell]":
        """Show how far it is."""
        return progress(what, total, unit)


TERMINAL: Final = Terminal()
