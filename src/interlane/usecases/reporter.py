"""Whom a use case tells how far it is; a terminal shows it, a page may not."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol


class Tell(Protocol):
    """Told how much is done, and how much there is if that has changed."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Note it."""
        ...


class Reporter(Protocol):
    """Hears what happens while a use case works."""

    def note(self, sentence: str) -> None:
        """Hear what people should know beside the answer."""
        ...

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Hear what is going on, where there are no steps to count."""
        ...

    def steps(self, what: str, total: int, unit: str = "jobs") -> AbstractContextManager[Tell]:
        """Return what is told of every step."""
        ...


class Silent:
    """Nobody listens."""

    def note(self, sentence: str) -> None:
        """Forget it."""

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Forget it."""
        yield

    @contextmanager
    def steps(self, what: str, total: int, unit: str = "jobs") -> Iterator[Tell]:
        """Forget it."""
        yield _forget


def _forget(done: int, total: int | None = None) -> None:
    pass


SILENT: Final = Silent()
