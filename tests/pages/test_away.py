"""Work in a process of its own: it comes back, fails or is stopped."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlane.live.files.job import read_spec
from interlane.model import InterlaneError, InvalidInput
from interlane.pages.away import Away


def run(limit_s: float, work: Callable[..., object], *args: object) -> object:
    """Have work done away, in a thread: the browser's loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, Away().run(limit_s, work, *args)).result()


def test_what_was_made_comes_back_from_another_process() -> None:
    assert run(60.0, os.getpid) != os.getpid()


def test_a_refusal_comes_back_as_one() -> None:
    with pytest.raises(InvalidInput, match="run is missing"):
        run(60.0, read_spec, {"name": "tea"})


def test_work_that_takes_too_long_is_stopped() -> None:
    begin_s = time.monotonic()
    with pytest.raises(InterlaneError, match=r"longer than 0\.5 s"):
        run(0.5, time.sleep, 1_000.0)
    assert time.monotonic() - begin_s < 60


def test_a_death_is_told() -> None:
    with pytest.raises(InterlaneError, match="ended without a result"):
        run(60.0, os._exit, 3)
