"""Calls that wait, and those they wait for."""

import asyncio

from interlane.live.functions.calls import Call, CallQueue

WINDOW_S = 0.3


def test_a_window_closes_with_the_batch_that_it_was_opened_for() -> None:
    async def waited_s() -> float:
        loop, ripe = asyncio.get_running_loop(), asyncio.Event()
        queue = CallQueue(loop, batch=2, window_s=WINDOW_S, on_ripe=ripe.set)
        calls = [Call(b"1", 0.0, float(number), loop.create_future()) for number in range(3)]
        for call in calls[:2]:
            queue.put(call)
        assert queue.take_batch() == calls[:2]

        await asyncio.sleep(WINDOW_S / 2)
        begin_s = loop.time()
        queue.put(calls[2])
        await ripe.wait()
        return loop.time() - begin_s

    assert asyncio.run(waited_s()) >= WINDOW_S * 0.99
