"""Whether a caller still waits for an answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Found = TypeVar("Found")


class CallerGone(Exception):
    """Nobody waits for the answer any more."""


async def while_there(receive: Any, work: Coroutine[Any, Any, Found]) -> Found:  # noqa: ANN401 - ASGI
    """Return what is found, unless the caller goes before; the work is cancelled then."""
    return await first_of(receive, asyncio.ensure_future(work))


async def first_of(receive: Any, answer: "asyncio.Future[Found]") -> Found:  # noqa: ANN401 - ASGI
    """Return an answer, unless the caller goes before; it is cancelled then.

    The body of the request must have been read.
    """
    gone = asyncio.ensure_future(_gone(receive))
    either: set[asyncio.Future[Any]] = {answer, gone}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise CallerGone
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


async def _gone(receive: Any) -> None:  # noqa: ANN401 - ASGI
    while (await receive())["type"] != "http.disconnect":
        pass
