"""Wakes those who watch the log."""

import asyncio


class News:
    """Wakes watchers when something was written."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake everybody who waits."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next thing written."""
        await self._event.wait()
