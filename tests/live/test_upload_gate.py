"""Large bodies are few at a time, and nothing is read of those that are refused."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from interlane.live.auth import Caller, Role
from interlane.live.bounds import ServerBounds
from interlane.live.http.access import CALLER
from interlane.live.http.upload_gate import SMALL_BYTES, UploadGate

BYTES_MAX = 64 << 20


class Uploading:
    """Sends bodies to a page that works on them until it is let go."""

    def __init__(self) -> None:
        self.gate = UploadGate(self._page, BYTES_MAX, ServerBounds())
        self.over = asyncio.Event()
        self.read = 0

    async def _page(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        await receive()
        await self.over.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def _receive(self) -> dict[str, object]:
        self.read += 1
        return {"type": "http.request"}

    async def send(self, name: str, length: int) -> int:
        """Send a body; return how that was answered."""
        answers: list[int] = []

        async def answered(message: Any) -> None:  # noqa: ANN401
            if "status" in message:
                answers.append(message["status"])

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [(b"content-length", str(length).encode())],
            CALLER: Caller(name, Role.VIEWER, name),
        }
        await self.gate(scope, self._receive, answered)
        (status,) = answers
        return status


def play_all(play: Coroutine[Any, Any, None]) -> None:
    """Play in a thread of its own: a browser of other tests keeps a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, play).result()


def test_one_user_sends_two_files_at_a_time_and_all_together_four() -> None:
    async def play() -> None:
        page = Uploading()
        names = ("ann", "ann", "bob", "eve")
        sent = [asyncio.create_task(page.send(name, 1 << 20)) for name in names]
        await asyncio.sleep(0)

        assert await page.send("ann", 1 << 20) == 429
        assert await page.send("dan", 1 << 20) == 503
        assert page.read == len(names)

        small = asyncio.create_task(page.send("ann", SMALL_BYTES))
        await asyncio.sleep(0)
        page.over.set()
        assert await asyncio.gather(*sent, small) == [200] * 5
        assert await page.send("ann", 1 << 20) == 200

    play_all(play())


def test_what_is_too_large_is_refused_unread() -> None:
    async def play() -> None:
        page = Uploading()

        assert await page.send("ann", BYTES_MAX + 1) == 413
        assert page.read == 0

    play_all(play())
