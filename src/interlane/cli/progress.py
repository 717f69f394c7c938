"""How far a long command has come, on stderr: a bar on a terminal, else a line at times."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Final

from interlane._compiled_cache import WATCHERS
from interlane.cli.output import say

if TYPE_CHECKING:
    from interlane.usecases.reporter import Tell

LINE_EVERY_S: Final = 15.0
"""Seconds between lines where there is no terminal."""

MOMENT_S: Final = 2.0
"""Seconds after which people wonder."""

COMPILED_EVERY_S: Final = 5.0
"""Seconds between lines that tell how much is compiled."""

KNOWN_RATIO: Final = 0.05
"""Share of the steps that must be done before the time of the others is foretold."""


@contextmanager
def progress(what: str, total: int, unit: str = "jobs") -> "Iterator[Tell]":
    """Show how far a command has come; yields the function to tell."""
    if sys.stderr.isatty():
        with _bar(what, total, unit) as tell:
            yield tell
    else:
        yield _lines(what, total, unit)


class StepRate:
    """How fast something goes, from when it got going; silent while that is not known.

    The first steps wait for what is loaded and compiled, and tell nothing of the others.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s = 0.0
        self._before: int | None = None
        self._done = 0
        self._now_s = 0.0

    def note(self, done: int) -> None:
        """Note how much is done."""
        self._now_s = self._clock()
        if done and self._before is None:
            self._since_s, self._before = self._now_s, done
        self._done = done

    def told(self, total: int) -> str:
        """Return the rate and the time left, or nothing while they would be invented."""
        steps, seconds = self._done - (self._before or 0), self._now_s - self._since_s
        if seconds < MOMENT_S or steps < KNOWN_RATIO * total:
            return ""
        left_s = (total - self._done) * seconds / steps
        return f"{steps / seconds:,.0f}/s, about {left_s:,.0f} s left"


@contextmanager
def _bar(what: str, total: int, unit: str) -> "Iterator[Tell]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[pace]}"),
    )
    pace = StepRate()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, pace="")
        expected = total

        def tell(done: int, total: int | None = None) -> None:
            nonlocal expected
            expected = total or expected
            pace.note(done)
            bar.update(task, completed=done, total=expected, pace=pace.told(expected))

        _bars.append(bar.console.print)
        try:
            yield tell
        finally:
            _bars.pop()


_bars: Final[list[Callable[[str], None]]] = []
"""How to say something above the bars that are on the screen."""


@contextmanager
def telling_of_compiling(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Say that the hot loops are compiled, when they are, and how far that is."""
    said_s: float | None = None

    def watch(done: int, most: int) -> None:
        nonlocal said_s
        now_s = clock()
        speak = _bars[-1] if _bars else say
        if said_s is None:
            speak("Compiling the hot loops, which takes a minute or two, once.")
        elif now_s - said_s < COMPILED_EVERY_S:
            return
        else:
            speak(f"Compiling: {done} of at most {most} functions done.")
        said_s = now_s

    WATCHERS.append(watch)
    try:
        yield
    finally:
        WATCHERS.remove(watch)


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
    last_s = time.monotonic()
    pace = StepRate()

    def tell(done: int, total: int | None = None) -> None:
        nonlocal last_s
        pace.note(done)
        now_s = time.monotonic()
        total = total or expected
        if now_s - last_s < LINE_EVERY_S or not done:
            return
        last_s = now_s
        known = pace.told(total)
        say(f"{what}: {done:,} of {total:,} {unit}{known and ', '}{known}")

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
