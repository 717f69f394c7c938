"""Work that would keep the server from answering, done in a process of its own.

The process is started afresh, gets one piece of work, and is killed when its time is over or
when nobody waits for it any more; it may take so much memory and no more.
"""

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

from interlane.model import InterlaneError, InvalidInput

MEMORY_BYTES_MAX: Final = 8 << 30
"""And never more than a share of what the machine has."""

AT_A_TIME: Final = 1
NICE: Final = 2
"""Less of the processor than the server gets, but not so much less that it starves: at 10, two
thirds of a CPU second took a minute beside six busy processes on two cores."""

Made = TypeVar("Made")


class Away:
    """Has work done elsewhere, one piece after another."""

    def __init__(self, waiting_max: int, memory_share: float) -> None:
        self._turn = asyncio.Semaphore(AT_A_TIME)
        self._in_hand_max = waiting_max
        self._in_hand = 0
        share = memory_share * machine_bytes()
        self.memory_bytes = min(MEMORY_BYTES_MAX, int(share))

    @contextmanager
    def room(self) -> Iterator[None]:
        """Hold room for one piece of work, or raise: neither it nor its files wait for ever."""
        if self._in_hand >= self._in_hand_max:
            raise InterlaneError("Too much waits to be worked on; try again in a moment.")
        self._in_hand += 1
        try:
            yield
        finally:
            self._in_hand -= 1

    async def run(self, limit_s: float, work: Callable[..., Made], *args: object) -> Made:
        """Return what a function returns; both it and its arguments must be picklable."""
        with self.room():
            return await self.run_in_room(limit_s, work, *args)

    async def run_in_room(
        self, limit_s: float, work: Callable[..., Made], *args: object
    ) -> Made:
        """Do the same where there is ``room`` already."""
        async with self._turn:
            context = get_context("spawn")
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=_work, args=(there, self.memory_bytes, work, args), daemon=True
            )
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


def machine_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _work(
    pipe: Connection,
    memory_bytes: int,
    work: Callable[..., object],
    args: tuple[object, ...],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends its workers itself
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    os.nice(NICE)
    try:
        pipe.send(work(*args))
    except InvalidInput as error:
        pipe.send(InvalidInput(str(error)))
    except InterlaneError as error:
        pipe.send(InterlaneError(str(error)))
