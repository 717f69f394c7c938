"""Work that would keep the server from answering, done in a process of its own.

The process is started afresh, gets one piece of work, and is killed when its time is over or
when nobody waits for it any more; it may take so much memory and no more.
"""

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

from interlane.model import InterlaneError, InvalidInput

MEMORY_BYTES_MAX: Final = 8 << 30
AT_A_TIME: Final = 1
NICE: Final = 10

Made = TypeVar("Made")


class Away:
    """Has work done elsewhere, one piece after another."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_A_TIME)

    async def run(self, limit_s: float, work: Callable[..., Made], *args: object) -> Made:
        """Return what a function returns; both it and its arguments must be picklable."""
        async with self._turn:
            context = get_context("spawn")
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(there, work, args), daemon=True)
            await asyncio.to_thread(process.start)
            there.close()
            try:
                found = await asyncio.to_thread(_heard, here, limit_s)
            finally:
                process.kill()
                here.close()
                await asyncio.to_thread(process.join)
        if isinstance(found, InterlaneError):
            raise found
        made: Made = found
        return made


def _heard(pipe: Connection, limit_s: float) -> Any:  # noqa: ANN401 - whatever was made
    try:
        if pipe.poll(limit_s):
            return pipe.recv()
    except EOFError:
        return InterlaneError("It ended without a result; it may have needed too much memory.")
    return InterlaneError(f"It took longer than {limit_s:g} s and was stopped; ask for less.")


def _work(pipe: Connection, work: Callable[..., object], args: tuple[object, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends its workers itself
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    os.nice(NICE)
    try:
        pipe.send(work(*args))
    except InvalidInput as error:
        pipe.send(InvalidInput(str(error)))
    except InterlaneError as error:
        pipe.send(InterlaneError(str(error)))
