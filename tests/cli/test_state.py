"""State that cannot be used is one sentence and an exit code, and is left as it is."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from tests.cli.conftest import Call
from tests.live.version_1 import write_version_1

from interlane.live.store.store import Store
from interlane.live.store.tables import VERSION


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def cut_to_nothing(file: Path) -> None:
    file.write_bytes(b"")
    file.with_name("token").write_text("once")


def random_bytes(file: Path) -> None:
    file.write_bytes(Random(7).randbytes(50_000))


def random_bytes_inside(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4_096] + Random(7).randbytes(len(content) - 4_096))


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"UPDATE life SET version = {VERSION + 1}")
        database.commit()


def half_migrated(file: Path) -> None:
    file.unlink()
    write_version_1(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"UPDATE life SET version = {VERSION}")
        database.commit()


DAMAGE: dict[str, tuple[Callable[[Path], None], str, int]] = {
    "cut": (cut, "malformed", 1),
    "cut to nothing": (cut_to_nothing, "is empty, but a server has worked here", 2),
    "random bytes": (random_bytes, "not a database", 1),
    "random bytes inside": (random_bytes_inside, "malformed", 1),
    "of a newer version": (
        newer,
        f"made by a newer interlane (tables of version {VERSION + 1}",
        2,
    ),
    "half migrated": (half_migrated, "log has no what", 2),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_state_is_one_sentence_and_left_alone(
    call: Call, tmp_path: Path, case: str
) -> None:
    damage, says, code = DAMAGE[case]
    file = tmp_path / "state.db"
    Store(f"sqlite:///{file}").close()
    damage(file)
    copy = tmp_path / "state.db.version-1"
    copy.write_bytes(b"as it was")
    before = file.read_bytes()

    said = call("up", "--state", tmp_path, "--devices", "cpu:1", "--port", 0)

    (sentence,) = said.err.splitlines()
    assert said.code == code
    assert says in sentence
    if case != "cut to nothing":
        assert str(copy) in sentence
    assert file.read_bytes() == before
    assert copy.read_bytes() == b"as it was"


@pytest.mark.parametrize("case", ["random bytes", "of a newer version", "half migrated"])
def test_damaged_state_is_not_replayed(call: Call, tmp_path: Path, case: str) -> None:
    damage, says, code = DAMAGE[case]
    file = tmp_path / "state.db"
    Store(f"sqlite:///{file}").close()
    damage(file)

    said = call("replay", "--state", tmp_path)

    assert said.code == code
    assert says in said.err
    assert len(said.err.splitlines()) == 1


def test_a_folder_without_a_log_is_not_replayed(call: Call, tmp_path: Path) -> None:
    said = call("replay", "--state", tmp_path)

    assert said.code == 2
    assert "There is no log in" in said.error
    assert not (tmp_path / "state.db").exists()
