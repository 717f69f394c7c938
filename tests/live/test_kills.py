"""A server that is killed at any moment loses nothing and runs nothing twice."""

from pathlib import Path

from interlane.testing.crashes import kill_again_and_again


def test_kills_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    found = kill_again_and_again(tmp_path, kills=3)

    assert found.acknowledged > 0
    assert (found.lost, found.twice, found.never) == (0, 0, 0)
    assert found.replays
    assert found.replayed.difference is None
    assert found.replayed.starts >= 4
    assert found.replayed.actions >= found.acknowledged
