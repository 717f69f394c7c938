"""Work in a process of its own: it comes back, fails or is stopped."""

import asyncio
import os
import time

import pytest

from interlane.model import InterlaneError, InvalidInput
from interlane.pages.away import Away


def refuse(what: str) -> None:
    raise InvalidInput(f"{what} is refused.")


def test_what_was_made_comes_back_from_another_process() -> None:
    away = Away()

    assert asyncio.run(away.run(60.0, os.getpid)) != os.getpid()


def test_a_refusal_comes_back_as_one() -> None:
    with pytest.raises(InvalidInput, match="tea is refused"):
        asyncio.run(Away().run(60.0, refuse, "tea"))


def test_work_that_takes_too_long_is_stopped() -> None:
    begin_s = time.monotonic()
    with pytest.raises(InterlaneError, match=r"longer than 0\.5 s"):
        asyncio.run(Away().run(0.5, time.sleep, 1_000.0))
    assert time.monotonic() - begin_s < 60


def test_a_death_is_told() -> None:
    with pytest.raises(InterlaneError, match="ended without a result"):
        asyncio.run(Away().run(60.0, os._exit, 3))
