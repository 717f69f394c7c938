"""The engine of this machine keeps the contract of all engines, with real processes."""

from pathlib import Path

import pytest

from interlane.live.port import Launch
from interlane.model.lifecycle import JobState
from interlane.testing.conformance import check_engine
from interlane.testing.live import driving, ended, make_engine, spec
from interlane.testing.local_world import LocalWorld
from interlane.testing.waiting import PATIENCE_S


@pytest.mark.parametrize("seed", range(3))
def test_the_engine_of_this_machine_keeps_the_contract(seed: int, tmp_path: Path) -> None:
    check_engine(lambda rng: LocalWorld(rng, tmp_path), seed, steps=40)


def test_an_attempt_that_is_asked_for_twice_begins_once_and_is_not_taken_for_over(
    tmp_path: Path,
) -> None:
    engine, note = make_engine(tmp_path), tmp_path / "note"
    begin = engine.begin

    def begin_twice(launch: Launch) -> None:
        begin(launch)
        begin(launch)

    engine.begin = begin_twice  # type: ignore[method-assign]
    with driving(tmp_path, engine=engine) as driver:
        run = f"echo once >> {note}; sleep 0.5"
        record = driver.submit(spec(run=run), "ann").result(PATIENCE_S)

        assert ended(driver, record).state is JobState.SUCCEEDED
    assert note.read_text() == "once\n"
