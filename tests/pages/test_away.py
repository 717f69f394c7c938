"""Work in a process of its own: it comes back, fails or is stopped."""

import asyncio
import gzip
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars
import pytest

from interlane.live.bounds import ServerBounds
from interlane.live.files.job import read_spec
from interlane.model import InterlaneError, InvalidInput
from interlane.pages.away import Away, machine_bytes
from interlane.pages.reports import BYTES_MAX, ROWS_MAX, must_be_modest

BOUNDS = ServerBounds()


def away_within(bounds: ServerBounds) -> Away:
    return Away(bounds.uploads_waiting, bounds.upload_memory_share)


def run(limit_s: float, work: Callable[..., object], *args: object) -> object:
    """Have work done away, in a thread: the browser's loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, away_within(BOUNDS).run(limit_s, work, *args)).result()


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


def test_work_gets_a_share_of_the_machines_memory() -> None:
    away = away_within(ServerBounds(upload_memory_share=1e-3))
    assert away.memory_bytes == int(machine_bytes() / 1000)
    with ThreadPoolExecutor(1) as pool, pytest.raises(InterlaneError, match="memory"):
        pool.submit(asyncio.run, away.run(60.0, bytearray, machine_bytes() // 2)).result()


def test_work_that_waits_is_bounded() -> None:
    away = away_within(ServerBounds(uploads_waiting=2))
    with (
        away.room(),
        away.room(),
        pytest.raises(InterlaneError, match="try again"),
        away.room(),
    ):
        pass
    with away.room():
        pass


def test_a_file_that_holds_far_more_than_its_size_says_is_refused(tmp_path: Path) -> None:
    modest, many, long = (tmp_path / f"{name}.csv.gz" for name in ("modest", "many", "long"))
    modest.write_bytes(gzip.compress(b"a,b\n" * 1_000))
    many.write_bytes(gzip.compress(b"\n" * (ROWS_MAX + 2)))
    long.write_bytes(gzip.compress(b"x" * (BYTES_MAX + 2)))
    wide = tmp_path / "rows.parquet"
    polars.DataFrame({"a": polars.zeros(ROWS_MAX + 1, eager=True)}).write_parquet(wide)

    must_be_modest(modest)
    for bomb in (many, long, wide):
        assert bomb.stat().st_size < 1 << 20
        with pytest.raises(InvalidInput, match="more than"):
            must_be_modest(bomb)
