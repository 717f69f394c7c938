"""Wakes those who watch the log."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class News:
    """Wakes watchers when something was written."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake everybody who waits."""
        self._event.set()
        self._event = asyncio.Event()

    def wait(self) -> Coroutine[Any, Any, object]:
        """Wait for the next thing written, from the moment of this call on."""
        return self._event.wait()
