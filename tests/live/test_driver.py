"""Jobs through the whole machine: kernel, store and real processes, over restarts."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from interlane.device.inventory import emulated
from interlane.engines.local.engine import LocalEngine
from interlane.engines.local.runner import ProcessRunner, ShimOrder
from interlane.kernel.scheduler import Scheduler
from interlane.live.archive import Archive
from interlane.live.driver import (
    AlreadyEnded,
    Driver,
    Key,
    KeyReused,
    NoSuchJob,
    NoSuchMachine,
    NotReady,
    VersionDiffers,
)
from interlane.live.driver.loop import AGAIN_S
from interlane.live.files.job import read_spec
from interlane.live.port import Attempt, Observation
from interlane.live.store.record import JobRecord, fold
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store, StoreFailed
from interlane.model import InvalidInput, JobId, MachineId
from interlane.model.lifecycle import JobState
from interlane.policy.order import PriorityWithAgeing
from interlane.testing.live import (
    clear,
    driving,
    ended,
    make_driver,
    spec,
    this_machine,
    view_of,
)
from interlane.testing.pretend import PretendEngine
from interlane.testing.waiting import PATIENCE_S, until

FOREVER = "echo up; exec sleep 1000"


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with driving(tmp_path) as driver:
        yield driver


def submit(driver: Driver, name: str = "a", run: str = "true", **more: Any) -> JobRecord:  # noqa: ANN401
    return driver.submit(spec(name, run, **more), "ann").result(PATIENCE_S)


def wait_for(file: Path) -> str:
    """Return what a job does until a file is there."""
    return f"while [ ! -e {file} ]; do sleep 0.02; done"


def running(driver: Driver, record: JobRecord) -> JobRecord:
    """Wait until a job prints that it is up."""
    attempt = Attempt(record.id, 1, record.uid)
    until(lambda: b"up" in driver.engine.output(attempt, 0, 100).data, f"{record.id} running")
    until(lambda: state(driver, record) is JobState.RUNNING)
    found = driver.open_record(record.id)
    assert found is not None
    return found


def state(driver: Driver, record: JobRecord) -> JobState | None:
    found = driver.open_record(record.id) or driver.store.job(record.id)
    return None if found is None else found.state


def check_log(store: Store) -> None:
    """The records are what the log says, and nothing else."""
    assert {r.id: r for r in store.jobs(JobsWanted(limit=10_000))} == fold(store.whole_log())


def kinds(driver: Driver, record: JobRecord) -> list[str]:
    return [entry.kind for entry in driver.store.log(job_id=record.id)]


def test_a_job_runs_and_its_timeline_is_told(driver: Driver) -> None:
    done = ended(driver, submit(driver, run="exit 3"))

    assert (done.state, done.exit_code) == (JobState.FAILED, 3)
    assert done.reason == "It ended with exit code 3."
    assert kinds(driver, done) == ["Submitted", "Start", "Started", "Finished"]
    check_log(driver.store)


def test_what_does_not_fit_waits_and_then_runs(driver: Driver) -> None:
    first = running(driver, submit(driver, "first", FOREVER, gpus=2))
    second = submit(driver, "second", gpus=1)

    refusal = driver.ask(lambda kernel, now_s: kernel.explain(second.id, now_s)).result(
        PATIENCE_S
    )

    assert state(driver, second) is JobState.QUEUED
    assert refusal is not None
    assert "found 0" in refusal.reason
    driver.cancel(first.id, "ann").result(PATIENCE_S)
    assert ended(driver, second).state is JobState.SUCCEEDED
    assert ended(driver, first).state is JobState.CANCELLED
    check_log(driver.store)


def test_jobs_see_their_devices_their_env_and_their_secrets(
    driver: Driver, tmp_path: Path
) -> None:
    (tmp_path / "secrets" / "shared").mkdir()
    (tmp_path / "secrets" / "shared" / "HF_TOKEN").write_text("hush\n")
    run = (
        "echo $INTERLANE_DEVICES/$MODEL/$HF_TOKEN/$INTERLANE_TOKEN/[$CUDA_VISIBLE_DEVICES]; pwd"
    )
    record = submit(
        driver, run=run, gpus=2, env={"MODEL": "bert"}, secrets=["HF_TOKEN"], workdir="/usr"
    )
    ended(driver, record)

    said = driver.engine.output(Attempt(record.id, 1, record.uid), 0, 1_000).data

    assert said.decode().split() == ["0,1/bert/hush//[]", "/usr"]
    assert "hush" not in str(driver.store.job(record.id))
    assert "hush" not in str(list(driver.store.whole_log()))


def test_a_secret_without_a_value_is_refused_at_once(driver: Driver) -> None:
    with pytest.raises(InvalidInput, match="'HF_TOKEN', which has no value for 'ann'; put it"):
        driver.submit(spec(secrets=["HF_TOKEN"]), "ann")


def test_a_gang_gets_a_process_for_every_rank(driver: Driver) -> None:
    run = "echo rank $INTERLANE_NODE_RANK of $INTERLANE_NUM_NODES on $INTERLANE_DEVICES"
    record = submit(driver, run=run, gang={"nodes": 2})
    ended(driver, record)

    said = driver.engine.output(Attempt(record.id, 1, record.uid), 0, 1_000).data

    assert sorted(said.decode().splitlines()) == ["rank 0 of 2 on 0", "rank 1 of 2 on 1"]


def test_roles_start_together_and_know_each_other(driver: Driver) -> None:
    told = "$INTERLANE_ROLE $INTERLANE_ROLE_RANK $RANK/$WORLD_SIZE [$INTERLANE_DEVICES]"
    tasks = [
        {"role": "ps", "resources": {"cpu": 1}, "run": f"echo serving {told}"},
        {"role": "worker", "count": 2, "resources": {"gpu": {"count": 1}}},
    ]
    job = read_spec({"name": "roles", "run": f"echo training {told}", "tasks": tasks})
    record = driver.submit(job, "ann").result(PATIENCE_S)
    ended(driver, record)

    said = driver.engine.output(Attempt(record.id, 1, record.uid), 0, 1_000).data

    assert sorted(said.decode().splitlines()) == [
        "serving ps 0 0/3 []",
        "training worker 0 1/3 [0]",
        "training worker 1 2/3 [1]",
    ]


def test_a_job_that_can_never_run_is_refused_with_a_reason(driver: Driver) -> None:
    record = submit(driver, gpus=3)

    done = ended(driver, record)

    assert done.state is JobState.REFUSED
    assert done.reason is not None
    assert done.reason.startswith("never fits:")


def test_a_key_makes_one_job(driver: Driver) -> None:
    one = driver.submit(spec(), "ann", Key("k", "d1"))
    two = driver.submit(spec(), "ann", Key("k", "d1"))
    other = driver.submit(spec(), "ann", Key("k", "d2"))
    bobs = driver.submit(spec(), "bob", Key("k", "d1"))

    assert one.result(PATIENCE_S).id == two.result(PATIENCE_S).id
    assert bobs.result(PATIENCE_S).id != one.result(PATIENCE_S).id
    with pytest.raises(KeyReused):
        other.result(PATIENCE_S)
    later = driver.submit(spec(), "ann", Key("k", "d1")).result(PATIENCE_S)
    assert later.id == one.result(PATIENCE_S).id


def test_only_what_is_there_and_as_it_was_seen_can_be_cancelled(driver: Driver) -> None:
    record = running(driver, submit(driver, run=FOREVER))

    with pytest.raises(VersionDiffers, match="is at version 3, not 1"):
        driver.cancel(record.id, "ann", version=1).result(PATIENCE_S)
    with pytest.raises(NoSuchJob):
        driver.cancel(JobId("none-9"), "ann").result(PATIENCE_S)
    driver.cancel(record.id, "ann", version=record.version).result(PATIENCE_S)
    done = ended(driver, record)
    with pytest.raises(AlreadyEnded, match="has cancelled already"):
        driver.cancel(record.id, "ann").result(PATIENCE_S)

    assert (done.exit_code, done.cancelled_by) == (143, "ann")


def test_a_cancel_that_comes_together_with_the_end_comes_too_late(tmp_path: Path) -> None:
    engine = PretendEngine(this_machine().machines)
    with driving(tmp_path, engine=engine) as driver:
        record = submit(driver)
        until(lambda: state(driver, record) is JobState.RUNNING)
        asked, go_on = threading.Event(), threading.Event()

        def keep_busy(kernel: Scheduler, now_s: float) -> None:
            asked.set()
            go_on.wait(PATIENCE_S)

        driver.ask(keep_busy)
        asked.wait(PATIENCE_S)

        engine.finish(Attempt(record.id, 1, record.uid))
        late = driver.cancel(record.id, "ann")
        go_on.set()

        with pytest.raises(AlreadyEnded):
            late.result(PATIENCE_S)
        assert ended(driver, record).state is JobState.SUCCEEDED
        check_log(driver.store)


def test_a_preempted_job_is_stopped_with_grace_and_runs_again(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    run = (
        f"[ -e {saved} ] && exit 0; trap 'touch {saved}; exit 1' TERM; echo up; "
        "while :; do sleep 0.05; done"
    )
    order = PriorityWithAgeing(preemptive=True)
    with driving(tmp_path, gpus=1, order=order) as driver:
        low = submit(driver, "low", run, priority=1, checkpoint={"grace": "30s"})
        running(driver, low)
        high = ended(driver, submit(driver, "high", "sleep 0.1", priority=90))
        low = ended(driver, low)

        assert high.state is JobState.SUCCEEDED
        assert (low.state, low.attempt) == (JobState.SUCCEEDED, 2)
        assert low.ran_s > 0
        assert "Preempted" in kinds(driver, low)
        check_log(driver.store)


# -- restarts -----------------------------------------------------------------------------


def test_a_new_server_adopts_what_runs_and_starts_what_waited(tmp_path: Path) -> None:
    note = tmp_path / "ran"
    first = make_driver(tmp_path, gpus=1)
    first.start()
    run = f"echo once >> {note}; echo up; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    one = running(first, submit(first, "one", run))
    two = submit(first, "two")
    first.close()

    with driving(tmp_path, gpus=1) as second:
        assert state(second, one) is JobState.RUNNING
        assert state(second, two) is JobState.QUEUED
        (tmp_path / "go").touch()

        assert ended(second, one).state is JobState.SUCCEEDED
        assert ended(second, two).state is JobState.SUCCEEDED
        assert note.read_text() == "once\n"
        check_log(second.store)


def test_an_attempt_on_record_that_never_began_is_made_again_once(tmp_path: Path) -> None:
    note = tmp_path / "ran"
    first = make_driver(tmp_path, gpus=1, engine=PretendEngine(this_machine(1).machines))
    first.start()
    record = submit(first, run=f"echo once >> {note}")
    until(lambda: state(first, record) is JobState.RUNNING)  # so it believes; nothing runs
    first.close()

    with driving(tmp_path, gpus=1) as second:
        done = ended(second, record)

        assert (done.state, done.attempt) == (JobState.SUCCEEDED, 2)
        assert note.read_text() == "once\n"
        check_log(second.store)


def test_a_cancel_that_was_stored_is_carried_out_by_the_next_server(tmp_path: Path) -> None:
    first = make_driver(tmp_path, gpus=1)
    first.start()
    record = running(first, submit(first, run=FOREVER))
    first.engine.stop = lambda attempt, how: None  # type: ignore[method-assign]
    first.cancel(record.id, "ann").result(PATIENCE_S)
    first.close()

    with driving(tmp_path, gpus=1) as second:
        assert ended(second, record).state is JobState.CANCELLED


def test_a_job_whose_device_is_gone_waits_again_and_nothing_of_it_goes_on(
    tmp_path: Path,
) -> None:
    first = make_driver(tmp_path, gpus=2)
    first.start()
    note = tmp_path / "pid"
    record = running(first, submit(first, run=f"echo $$ > {note}; {FOREVER}", gpus=2))
    first.close()

    with driving(tmp_path, gpus=1) as second:
        waits = second.open_record(record.id)

        assert waits is not None
        assert (waits.state, waits.placement) == (JobState.QUEUED, None)
        assert waits.reason == "The job ran on here, which has no such room any more."
        until(lambda: not Path(f"/proc/{note.read_text().strip()}").exists())
        check_log(second.store)


def test_a_job_on_a_device_that_is_lost_waits_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = {0, 1}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cores))
    engine = LocalEngine(tmp_path, emulated(this_machine(2).machines[0]), look_s=0.05)
    with driving(tmp_path, engine=engine) as driver:
        wide = running(driver, submit(driver, "wide", FOREVER, gpus=2))

        cores.discard(1)
        until(lambda: state(driver, wide) is JobState.QUEUED)
        one = ended(driver, submit(driver, "one"))
        why = view_of(driver).why_now(wide.id).refusal

        assert one.state is JobState.SUCCEEDED  # the other device goes on
        assert why is not None
        assert "lost" in why.reason
        cores.add(1)
        until(lambda: state(driver, wide) is JobState.RUNNING)
        assert kinds(driver, wide).count("Start") == 2
        check_log(driver.store)


def test_a_drained_machine_takes_nothing_new_over_a_restart(tmp_path: Path) -> None:
    here = MachineId("here")
    with driving(tmp_path) as driver:
        before = running(
            driver, submit(driver, "before", f"echo up; {wait_for(tmp_path / 'go')}")
        )
        driver.drain(here, "ann").result(PATIENCE_S)
        waits = submit(driver, "waits")
        (tmp_path / "go").touch()
        assert ended(driver, before).state is JobState.SUCCEEDED
        why = view_of(driver).why_now(waits.id).refusal
        with pytest.raises(
            NoSuchMachine, match="There is no machine 'elsewhere'; there are: here"
        ):
            driver.drain(MachineId("elsewhere"), "ann").result(PATIENCE_S)
    assert why is not None
    assert "drained" in why.reason

    with driving(tmp_path) as second:
        later = submit(second, "later")
        assert [one.drained for one in view_of(second).machines()] == [True]
        assert state(second, later) is JobState.QUEUED
        second.drain(here, "ann", drained=False).result(PATIENCE_S)
        assert ended(second, later).state is JobState.SUCCEEDED
        assert second.store.drains() == []


def test_an_attempt_that_nobody_knows_is_ended(tmp_path: Path) -> None:
    first = make_driver(tmp_path, gpus=1)
    first.start()
    note = tmp_path / "pid"
    record = running(first, submit(first, run=f"echo $$ > {note}; {FOREVER}"))
    first.close()
    (tmp_path / "state.db").unlink()  # as if an older copy had been put back
    claim = tmp_path / "runs" / f"{record.id}.{record.uid}" / "1" / "claim"
    claim.write_text("scribble")  # else it would be taken up

    with driving(tmp_path, gpus=1) as second:
        until(lambda: not Path(f"/proc/{note.read_text().strip()}").exists())
        assert ended(second, submit(second, "next")).state is JobState.SUCCEEDED


def test_start_does_not_read_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with driving(tmp_path) as driver:
        ended(driver, submit(driver))
    monkeypatch.setattr(Store, "log", lambda *_, **__: pytest.fail("the log was read"))

    with driving(tmp_path) as driver:
        assert driver.is_ready


# -- what goes wrong ----------------------------------------------------------------------


class Failing(Store):
    """A store that fails when told to."""

    failures = 0
    tries = 0

    def commit(self, *given: object, **more: object) -> None:
        self.tries += 1
        if self.failures and given[0]:
            self.failures -= 1
            raise StoreFailed("The disk is full.")
        super().commit(*given, **more)  # type: ignore[arg-type]


def test_a_commit_that_fails_is_told_and_nothing_of_it_happens(tmp_path: Path) -> None:
    store = Failing(f"sqlite:///{tmp_path / 'state.db'}")
    with driving(tmp_path, store=store) as driver:
        before = running(driver, submit(driver, "before", FOREVER))
        store.failures = 1

        with pytest.raises(Exception, match="The disk is full"):
            submit(driver, "lost", f"touch {tmp_path / 'lost'}")

        until(lambda: driver.is_ready)
        after = ended(driver, submit(driver, "after"))
        assert after.state is JobState.SUCCEEDED
        assert after.id == "after-2"
        assert state(driver, before) is JobState.RUNNING
        assert not (tmp_path / "lost").exists()
        check_log(store)


def test_an_end_that_could_not_be_stored_is_not_forgotten(tmp_path: Path) -> None:
    store = Failing(f"sqlite:///{tmp_path / 'state.db'}")
    with driving(tmp_path, store=store) as driver:
        run = f"echo up; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 5"
        record = running(driver, submit(driver, run=run))
        store.failures = 1
        (tmp_path / "go").touch()

        assert ended(driver, record).exit_code == 5


def test_a_disk_that_stays_full_is_not_asked_without_end(tmp_path: Path) -> None:
    store = Failing(f"sqlite:///{tmp_path / 'state.db'}")
    with driving(tmp_path, store=store) as driver:
        record = running(driver, submit(driver, run=f"echo up; {wait_for(tmp_path / 'go')}"))
        store.failures, store.tries = 1_000_000, 0
        (tmp_path / "go").touch()
        until(lambda: store.tries >= 4)
        began_s, tries = time.monotonic(), store.tries
        until(lambda: store.tries >= tries + 4)

        assert time.monotonic() - began_s > AGAIN_S
        store.failures = 0
        assert ended(driver, record).state is JobState.SUCCEEDED


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)), capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(("umount", "-l", str(disk)), check=True)


def test_the_server_is_ready_again_only_when_its_disk_has_room(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlane.live.driver.loop.AGAIN_S", 0.02)
    large = {f"V{number}": "x" * 50_000 for number in range(10)}
    store = Store(f"sqlite:///{small_disk / 'state.db'}", Archive(small_disk / "archive"))
    with driving(small_disk, store=store) as driver:
        driver.submit(spec("first"), "ann").result()
        until(lambda: not driver.open_records(), "the end of the first")
        fill = small_disk / "fill"
        with suppress(OSError), fill.open("wb", buffering=0) as full:
            while True:
                full.write(bytes(4096))
        os.truncate(fill, fill.stat().st_size - (64 << 10))  # enough for small commits
        with pytest.raises(NotReady):
            driver.submit(spec("lost", env=large), "ann").result()
        seen = [driver.is_ready]
        for _ in range(50):
            time.sleep(0.02)
            seen.append(driver.is_ready)
        fill.unlink()
        until(lambda: driver.is_ready, "room")
        after = driver.submit(spec("after", env=large), "ann").result()
        assert ended(driver, after).state is JobState.SUCCEEDED

    assert not any(seen)


def test_an_engine_that_cannot_be_looked_at_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlane.live.driver.observer.AGAIN_S", 0.05)
    store = Failing(f"sqlite:///{tmp_path / 'state.db'}")
    with driving(tmp_path, store=store) as driver:
        record = running(driver, submit(driver, run=f"echo up; {wait_for(tmp_path / 'go')}"))
        looks = iter((OSError(28, "No space left on device"), RuntimeError("a fault"), None))
        observe = driver.engine.observe

        def looked(known: Collection[Attempt]) -> Observation:
            if (error := next(looks, None)) is not None:
                raise error
            return observe(known)

        driver.engine.observe = looked  # type: ignore[method-assign]
        store.failures = 1
        (tmp_path / "go").touch()  # its end is lost with the commit that fails

        assert ended(driver, record).state is JobState.SUCCEEDED
        assert next(looks, "all asked") == "all asked"


def test_a_server_whose_database_is_gone_can_be_ended(tmp_path: Path) -> None:
    store = Failing(f"sqlite:///{tmp_path / 'state.db'}")
    driver = make_driver(tmp_path, store=store)
    driver.start()
    record = running(driver, submit(driver, run=f"echo up; {wait_for(tmp_path / 'go')}"))
    store.failures = 1_000_000
    (tmp_path / "go").touch()
    until(lambda: not driver.is_ready)
    with pytest.raises(NotReady, match="The disk is full"):
        submit(driver)

    driver.close()

    with driving(tmp_path) as second:
        assert ended(second, record).state is JobState.SUCCEEDED


def test_a_caller_who_goes_away_disturbs_nobody(driver: Driver) -> None:
    gone = driver.submit(spec("gone"), "ann")

    assert not gone.cancel()
    assert gone.result(PATIENCE_S).id == "gone-1"


def test_a_job_that_cannot_be_started_fails_after_three_tries(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlane.live.driver.reports.START_AGAIN_S", 0.05)

    def refuses(self: ProcessRunner, order: ShimOrder) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(ProcessRunner, "start", refuses)

    done = ended(driver, submit(driver))

    assert (done.state, done.attempt) == (JobState.FAILED, 3)
    assert done.reason == "It could not be started 3 times: no more processes"
    assert kinds(driver, done).count("StartFailed") == 2


def test_a_server_that_is_superseded_while_it_recovers_stops(tmp_path: Path) -> None:
    store = Failing(f"sqlite:///{tmp_path / 'state.db'}")
    engine = PretendEngine(this_machine().machines)
    old = make_driver(tmp_path, store=store, engine=engine)
    old.start()
    record = submit(old)
    until(lambda: state(old, record) is JobState.RUNNING)
    new = Store(f"sqlite:///{tmp_path / 'state.db'}")
    new.begin_epoch()
    store.failures = 1

    with pytest.raises(NotReady, match="The disk is full"):
        submit(old)
    engine.finish(Attempt(record.id, 1, record.uid))  # whoever recovers has something to write

    until(lambda: old.stopped_because is not None)
    old.close()


def test_a_superseded_server_stops_and_says_why(tmp_path: Path) -> None:
    old = make_driver(tmp_path)
    old.start()
    new = Store(f"sqlite:///{tmp_path / 'state.db'}")
    new.begin_epoch()

    with pytest.raises(Exception, match="has taken"):
        submit(old)

    until(lambda: old.stopped_because is not None)
    assert not old.is_ready
    old.close()
    assert new.open_jobs() == []


def test_time_does_not_go_back_when_the_clock_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driving(tmp_path) as driver:
        first = submit(driver)
        ended(driver, first)
    monkeypatch.setattr(time, "time", lambda: 1_000.0)

    with driving(tmp_path) as driver:
        second = submit(driver)

        assert second.submitted_s >= first.submitted_s


def test_a_killed_job_tells_its_signal(driver: Driver, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    record = running(driver, submit(driver, run=f"echo $$ > {note}; {FOREVER}"))

    os.kill(int(note.read_text()), signal.SIGKILL)

    assert ended(driver, record).exit_code == 137


def test_everything_can_be_cancelled(driver: Driver) -> None:
    for number in range(5):
        submit(driver, f"n{number}", FOREVER)

    clear(driver)

    assert {r.state for r in driver.store.jobs(JobsWanted())} == {JobState.CANCELLED}
    check_log(driver.store)
