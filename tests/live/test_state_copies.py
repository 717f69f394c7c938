"""State is copied, put back, looked through; what cannot be read costs nobody else anything."""

import json
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest

from interlane.live import folder
from interlane.live.auth import LastAdmin, Role, Tokens
from interlane.live.driver import Driver
from interlane.live.store.record import JobRecord, UnreadableRecord
from interlane.live.store.store import Store
from interlane.live.up import _check_clock
from interlane.model import InvalidInput
from interlane.model.lifecycle import JobState
from interlane.testing.live import driving, ended, make_driver, spec
from interlane.testing.waiting import PATIENCE_S, until
from interlane.usecases import state as copies


def submit(driver: Driver, name: str = "a", run: str = "true") -> JobRecord:
    return driver.submit(spec(name, run), "ann").result(PATIENCE_S)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- copies -------------------------------------------------------------------------------


def test_an_old_copy_is_put_back_and_new_jobs_run(tmp_path: Path) -> None:
    state, copy, ran = tmp_path / "state", tmp_path / "copy", tmp_path / "ran"
    with driving(state) as driver:
        kept = ended(driver, submit(driver))
        made = copies.back_up(state, copy)
        assert (made.jobs, mode(copy)) == (1, 0o600)
        lost = ended(driver, submit(driver, run=f"echo old >> {ran}"))
        with pytest.raises(InvalidInput, match="is there already"):
            copies.back_up(state, copy)

    found = copies.restore(state, copy)

    assert found.kept is not None
    before = Store(f"sqlite:///{found.kept}", only_reads=True)
    assert before.job(lost.id) is not None
    before.close()
    with driving(state) as driver:
        assert driver.store.job(kept.id) == kept
        new = ended(driver, submit(driver, run=f"echo new >> {ran}"))
        assert new.state is JobState.SUCCEEDED
    assert ran.read_text().split() == ["old", "new"]
    looked = copies.check(state)
    assert looked.problems == ()
    assert [lost.id in one for one in looked.remarks] == [True]


def test_a_copy_is_not_put_under_a_server_nor_into_another_folder(tmp_path: Path) -> None:
    with driving(tmp_path / "a") as driver:
        ended(driver, submit(driver))
        folder.note_database(tmp_path / "a", driver.store.life().identity)
        copies.back_up(tmp_path / "a", tmp_path / "copy")
    with driving(tmp_path / "b") as driver:
        folder.note_database(tmp_path / "b", driver.store.life().identity)
    before = (tmp_path / "b" / "state.db").read_bytes()

    with pytest.raises(InvalidInput, match="another server's database"):
        copies.restore(tmp_path / "b", tmp_path / "copy")
    held = folder.lock(tmp_path / "a")
    assert held is not None
    with held, pytest.raises(InvalidInput, match="A server uses"):
        copies.restore(tmp_path / "a", tmp_path / "copy")
    identity = folder.identified(tmp_path / "b").database
    (tmp_path / "nonsense").write_bytes(b"x" * 5_000)
    with pytest.raises(InvalidInput, match="no database of interlane"):
        copies.restore(tmp_path / "a", tmp_path / "nonsense")
    assert (tmp_path / "b" / "state.db").read_bytes() == before
    assert copies.restore(tmp_path / "b", tmp_path / "copy", of_another=True).kept is not None
    assert folder.identified(tmp_path / "b").database != identity


def test_postgresql_is_copied_by_its_own_means(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="pg_dump"):
        copies.back_up(tmp_path, tmp_path / "copy", "postgresql://me:secret@host/db")


# -- what cannot be read ------------------------------------------------------------------


def changed(state: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(state / "state.db")) as database:
        database.execute(statement, values)
        database.commit()


def _no_json(state: Path) -> None:
    changed(state, "UPDATE jobs SET document = '{' WHERE id = 'bad-1'")
    changed(state, "UPDATE log SET detail = '[' WHERE job_id = 'bad-1'")


def _newer_field(state: Path) -> None:
    for table, column, where in (("jobs", "document", "id"), ("log", "detail", "job_id")):
        with closing(sqlite3.connect(state / "state.db")) as database:
            asked = f"SELECT rowid, {column} FROM {table} WHERE {where} = 'bad-1'"
            for row, text in database.execute(asked).fetchall():
                said = json.loads(text)
                said.get("spec", {})["from_the_future"] = 1
                what = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
                database.execute(what, (json.dumps(said), row))
            database.commit()


def _newer_state(state: Path) -> None:
    text = "UPDATE jobs SET document = replace(document, '\"queued\"', '\"levitating\"')"
    changed(state, f"{text} WHERE id = 'bad-1'")
    changed(state, "UPDATE log SET kind = 'Levitated' WHERE job_id = 'bad-1'")


BROKEN = {"no JSON": _no_json, "a newer field": _newer_field, "a newer state": _newer_state}


@pytest.mark.parametrize("how", BROKEN)
def test_a_record_that_cannot_be_read_keeps_nobody_else_waiting(
    tmp_path: Path, how: str
) -> None:
    gate = tmp_path / "gate"
    first = make_driver(tmp_path / "state", gpus=1)
    first.start()
    (machine,) = first.snapshot().cluster
    first.drain(machine.id, "op").result(PATIENCE_S)
    submit(first, "bad", "touch ran-bad")
    good = submit(first, "good", f"touch {gate}")
    first.close()
    first.store.close()
    BROKEN[how](tmp_path / "state")

    second = make_driver(tmp_path / "state", gpus=1)
    second.start()
    second.drain(machine.id, "op", drained=False).result(PATIENCE_S)
    assert ended(second, good).state is JobState.SUCCEEDED
    shown = second.store.job("bad-1")
    assert isinstance(shown, UnreadableRecord)
    assert shown.state is JobState.UNKNOWN
    assert "cannot be read" in str(shown.reason)
    second.close()
    second.store.close()
    looked = copies.check(tmp_path / "state")
    assert any("bad-1" in one for one in looked.problems)


def test_a_record_that_is_damaged_is_made_again_from_the_log(tmp_path: Path) -> None:
    with driving(tmp_path) as driver:
        done = ended(driver, submit(driver, run="exit 3"))
    changed(tmp_path, "UPDATE jobs SET document = 'x'")

    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    assert store.job(done.id) == done
    store.close()


def test_what_runs_and_cannot_be_read_is_left_running(tmp_path: Path) -> None:
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    first = make_driver(tmp_path / "state", gpus=2)
    first.start()
    run = f"while [ ! -e {gate} ]; do sleep 0.02; done; touch {ran}"
    submit(first, "bad", run)
    until(lambda: [one.state for one in first.open_records()] == [JobState.RUNNING])
    first.close()
    first.store.close()
    _no_json(tmp_path / "state")

    second = make_driver(tmp_path / "state", gpus=2, observe_every_s=0.1)
    second.start()
    later = submit(second, "later")
    gate.touch()
    until(ran.exists, "the end of what nobody can read")
    assert ended(second, later).state is JobState.SUCCEEDED
    second.close()
    second.store.close()


# -- clocks, tokens, modes ----------------------------------------------------------------


@pytest.mark.parametrize("days", [31, 3_650])
def test_a_clock_far_ahead_of_the_log_is_refused(days: float) -> None:
    with pytest.raises(InvalidInput, match=r"days after .*--clock-is-right"):
        _check_clock(time.time() - days * 86_400)


@pytest.mark.parametrize("days", [0, 3, 29, -30])
def test_a_weekend_off_or_a_clock_that_is_behind_is_not(days: float) -> None:
    _check_clock(time.time() - days * 86_400)
    _check_clock(0.0)  # nothing has happened yet


def test_the_last_admin_cannot_be_revoked(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    tokens = Tokens(store, lambda: 1.0)
    _, first = tokens.make("root", Role.ADMIN)
    tokens.make("ann", Role.USER)
    with pytest.raises(LastAdmin, match="last token of an admin"):
        tokens.revoke(first.id)
    _, second = tokens.make("other", Role.ADMIN)
    assert tokens.revoke(first.id)
    with pytest.raises(LastAdmin):
        tokens.revoke(second.id)
    store.close()


def test_whoever_owns_the_folder_gets_in_again(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    made = copies.make_token(tmp_path, "op", "admin", 1.0)
    caller = Tokens(store, lambda: 2.0).caller(made)
    store.close()
    assert caller is not None
    assert caller.role is Role.ADMIN
    held = folder.lock(tmp_path)
    assert held is not None
    with held, pytest.raises(InvalidInput, match="A server uses"):
        copies.make_token(tmp_path, "op", "admin", 1.0)


def test_a_folder_that_others_may_enter_is_closed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    (state / "state.db").touch(mode=0o644)
    folder.prepare(state)
    folder.close_to_others(state)

    assert mode(state) == 0o700
    assert mode(state / "state.db") == 0o600
