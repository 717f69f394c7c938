"""Two servers and one database: what one began, the other starts nowhere a second time."""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from interlane.live import folder
from interlane.live.driver import Driver, NotUnknown, Resolution
from interlane.live.replay import replay
from interlane.live.store.record import JobRecord, fold
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store, Superseded
from interlane.live.turn import Beats, Taking, Turn
from interlane.model import InvalidInput
from interlane.model.lifecycle import JobState
from interlane.testing import crashes
from interlane.testing.live import ended, make_driver, make_scheduler, spec
from interlane.testing.waiting import PATIENCE_S, until

JOBS = 6


@pytest.fixture
def shared(postgres: str) -> str:
    """The address of an empty PostgreSQL database."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres


class Site:
    """Real servers on one database, and jobs that write down that they run."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.ran = folder / "ran"
        self.gate = folder / "gate"
        self.ran.touch()
        self._servers: list[subprocess.Popen[bytes]] = []

    def up(
        self, state: Path, *words: str, says: bytes = b"Serving"
    ) -> "subprocess.Popen[bytes]":
        more = ("--no-pages", "--database-url", self.url, *words)
        server = crashes.started(state, *more, until=says)
        self._servers.append(server)
        return server

    def refused(self, state: Path, *words: str) -> str:
        more = ("--no-pages", "--database-url", self.url, "--port", "0", *words)
        done = subprocess.run(
            (*crashes.COMMAND, "up", "--state", str(state), "--devices", "cpu:2", *more),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        return done.stderr

    def submit(self, state: Path) -> set[str]:
        run = (
            f"echo $INTERLANE_JOB_ID >> {self.ran}; "
            f"while [ ! -e {self.gate} ]; do sleep 0.05; done"
        )
        job = {"name": "a", "run": run, "resources": {"gpu": {"compute": "500m"}}}
        return {crashes.submit(state, job, f"key-{number}") for number in range(JOBS)}

    def records(self) -> dict[str, JobRecord]:
        store = Store(self.url, only_reads=True)
        found = {one.id: one for one in store.jobs(JobsWanted(limit=100))}
        store.close()
        return {str(name): record for name, record in found.items()}

    def all_done(self) -> bool:
        return all(one.state is JobState.SUCCEEDED for one in self.records().values())

    def close(self) -> None:
        self.gate.touch()
        for server in self._servers:
            server.send_signal(signal.SIGCONT)
            server.terminate()
            crashes.ended(server)


@pytest.fixture
def site(tmp_path: Path, shared: str) -> Iterator[Site]:
    made = Site(tmp_path, shared)
    yield made
    made.close()


def test_a_standby_takes_over_and_starts_nothing_twice(site: Site, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    active = site.up(first)
    jobs = site.submit(first)
    until(lambda: len(site.ran.read_text().split()) == 4, "four jobs")
    passive = site.up(second, "--standby", says=b"Standing by")

    active.send_signal(signal.SIGKILL)
    crashes.ended(active)
    assert passive.stderr is not None
    assert any(line.startswith(b"Serving") for line in passive.stderr)

    assert "Another server uses" in site.refused(first)
    site.gate.touch()
    until(site.all_done, "the end of all jobs")
    assert Counter(site.ran.read_text().split()) == Counter(jobs)
    store = Store(site.url, only_reads=True)
    assert {one.id: one for one in store.jobs(JobsWanted(limit=99))} == fold(store.whole_log())
    store.close()


def test_a_server_that_is_superseded_ends_and_its_jobs_go_on(
    site: Site, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    active = site.up(first)
    jobs = site.submit(first)
    until(lambda: len(site.ran.read_text().split()) == 4, "four jobs")

    assert "serves this database" in site.refused(second)
    site.up(second, "--take-over")
    crashes.ended(active)  # by itself

    until(lambda: not _unknown(site), "somebody who can tell of all jobs")
    site.gate.touch()
    until(site.all_done, "the end of all jobs")
    assert Counter(site.ran.read_text().split()) == Counter(jobs)


def test_a_server_that_hangs_is_taken_over_and_fenced(site: Site, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    active = site.up(first)
    jobs = site.submit(first)
    until(lambda: len(site.ran.read_text().split()) == 4, "four jobs")

    active.send_signal(signal.SIGSTOP)
    site.up(second, "--standby")
    (second / "token").write_text((first / "token").read_text())  # the database knows it
    later = crashes.submit(second, {"name": "later", "run": "true"}, "later")
    active.send_signal(signal.SIGCONT)
    crashes.ended(active)  # by itself, once it notices

    site.gate.touch()
    until(site.all_done, "the end of all jobs")
    assert Counter(site.ran.read_text().split()) == Counter(jobs)
    assert later in site.records()


def _unknown(site: Site) -> list[str]:
    return [name for name, one in site.records().items() if one.state is JobState.UNKNOWN]


# -- a holder on another host -------------------------------------------------------------


@contextmanager
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this be another host for a while."""
    with monkeypatch.context() as patch:
        patch.setattr("interlane.live.folder.socket.gethostname", lambda: "elsewhere")
        patch.setattr(folder, "_boot", lambda: "another")
        yield


@contextmanager
def held_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Drive a store whose only job was begun on another host, and runs there."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    run = f"echo x >> {ran}; while [ ! -e {gate} ]; do sleep 0.02; done"
    first = make_driver(tmp_path / "first", store=Store(url))
    first.start()
    first.submit(spec("a", run), "ann").result(PATIENCE_S)
    until(ran.exists, "the job")
    first.close()
    first.store.close()
    with elsewhere(monkeypatch):
        second = make_driver(tmp_path / "second", store=Store(url), observe_every_s=0.1)
        second.start()
        try:
            yield second
        finally:
            gate.touch()
            second.close()
            second.store.close()


def only(driver: Driver) -> JobRecord:
    (record,) = driver.store.jobs(JobsWanted(limit=10))
    return record


def test_what_another_host_holds_is_unknown_and_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_elsewhere(tmp_path, monkeypatch) as driver:
        record = only(driver)
        assert record.state is JobState.UNKNOWN
        assert record.attempt == 1
        assert "on another host" in str(record.reason)
        assert f"interlane resolve {record.id}" in str(record.reason)
        found = replay(driver.store.whole_log(), lambda settings: make_scheduler())
        assert found.difference is None
    assert (tmp_path / "ran").read_text() == "x\n"


@pytest.mark.parametrize("how", list(Resolution))
def test_an_operator_decides_about_what_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Resolution
) -> None:
    with held_elsewhere(tmp_path, monkeypatch) as driver:
        (tmp_path / "gate").touch()
        driver.resolve(only(driver).id, how, "op").result(PATIENCE_S)
        done = ended(driver, only(driver))
        with pytest.raises(NotUnknown, match="only unknown ones"):
            driver.resolve(done.id, how, "op").result(PATIENCE_S)
        found = replay(driver.store.whole_log(), lambda settings: make_scheduler())
        assert found.difference is None
        assert {done.id: done} == fold(driver.store.whole_log())
    if how is Resolution.FAIL:
        assert (done.state, done.attempt) == (JobState.FAILED, 1)
        assert "op decided: fail" in str(done.reason)
    else:
        assert (done.state, done.attempt) == (JobState.SUCCEEDED, 2)


def test_an_unknown_job_can_be_cancelled_once_somebody_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_elsewhere(tmp_path, monkeypatch) as driver:
        driver.cancel(only(driver).id, "ann").result(PATIENCE_S)
        assert only(driver).state is JobState.UNKNOWN  # it may run still
        driver.resolve(only(driver).id, Resolution.REQUEUE, "op").result(PATIENCE_S)
        assert only(driver).state is JobState.CANCELLED
    assert (tmp_path / "ran").read_text() == "x\n"


def test_a_holder_that_comes_back_ends_the_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_elsewhere(tmp_path, monkeypatch) as driver:
        assert only(driver).state is JobState.UNKNOWN
    again = make_driver(tmp_path / "first", store=Store(f"sqlite:///{tmp_path / 'shared.db'}"))
    again.start()
    done = ended(again, only(again))
    again.close()

    assert (done.state, done.attempt) == (JobState.SUCCEEDED, 1)
    assert (tmp_path / "ran").read_text() == "x\n"


# -- turns --------------------------------------------------------------------------------


def _turn(store: Store, mine: Path, taking: Taking, said: list[str]) -> Turn:
    return Turn(
        store, folder.holder_of(mine), lambda holder: "It is away.", taking, said.append
    )


def test_a_server_of_another_host_that_beats_is_not_passed_over(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    active, other = Store(url), Store(url)
    with elsewhere(monkeypatch):
        active.begin_epoch(str(folder.holder_of(tmp_path / "there")))
    beats = Beats(active, lambda: 1.0, lambda error: None, every_s=0.05)
    beats.start()
    said: list[str] = []

    with pytest.raises(InvalidInput, match=r"elsewhere:.*serves this database"):
        _turn(other, tmp_path / "here", Taking.REFUSE, said).take()
    beats.close()

    last = active.life().number
    _turn(other, tmp_path / "here", Taking.REFUSE, said).take()  # it has signed off
    assert other.life().number == last + 1
    with pytest.raises(Superseded):
        active.beat(2.0)
    with pytest.raises(Superseded):  # somebody else was quicker
        active.begin_epoch("", last)
    for store in (active, other):
        store.close()


def test_a_copy_of_a_folder_is_another_folder(tmp_path: Path) -> None:
    first = folder.holder_of(tmp_path / "a")
    os.system(f"cp -a {tmp_path}/a {tmp_path}/b")
    second = folder.holder_of(tmp_path / "b")

    assert second.folder != first.folder
    assert folder.holder_of(tmp_path / "a") == first
    assert json.loads((tmp_path / "b" / "identity.json").read_text())["format"] == 1
    (tmp_path / "a").rename(tmp_path / "c")
    assert folder.holder_of(tmp_path / "c").folder == first.folder
