"""What the driver makes of what an engine does, one step after another."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from interlane.live.driver import Driver, NoSuchMachine
from interlane.live.driver.inbox import GiveBack
from interlane.live.port import Attempt, Ended, MachineGone, NeverGrew, Wanted
from interlane.live.store.record import JobRecord
from interlane.live.store.store import Store, StoreFailed
from interlane.model import Device, JobId, Machine, MachineId, with_devices
from interlane.model.lifecycle import JobState
from interlane.testing.live import make_driver, spec
from interlane.testing.pretend import Pace, PretendEngine, PretendWorld

FIRST, SECOND = MachineId("m0"), MachineId("m1")


def machine(name: str, gpus: int = 2) -> Machine:
    return Machine(MachineId(name), "EMULATED", gpus, 8_000, 65_536, 16_384)


def without(there: Machine, number: int) -> Machine:
    """Return a machine that has lost a device."""
    devices = [there.device(gpu) for gpu in range(there.gpus)]
    devices[number] = replace(devices[number], compute_milli=0)
    return with_devices(
        there.id, devices, cpu_milli=there.cpu_milli, memory_mib=there.memory_mib
    )


def make_world(machines: Sequence[Machine] = (), *, keeps_record: bool = False) -> PretendWorld:
    there = machines or (machine("m0"), machine("m1"))
    return PretendWorld({one.id: one for one in there}, keeps_record)


def opened(folder: Path, world: PretendWorld, **settings: object) -> Driver:
    """Return a driver that does what it is told, step by step."""
    engine = PretendEngine(world=world, pace=Pace.STEPS)
    driver = make_driver(folder, engine=engine, **settings)  # type: ignore[arg-type]
    driver.open()
    return driver


def turn(driver: Driver, times: int = 1) -> None:
    for _ in range(times):
        driver.turn(waits=False)


def work(driver: Driver) -> None:
    """Let the engine do everything that it was asked, and the driver hear of it."""
    world = driver.engine.world  # type: ignore[attr-defined]
    while world.work(Random(0)):
        turn(driver)


def look(driver: Driver) -> None:
    known = driver.attempts()
    turn(driver)
    driver.observed(driver.engine.observe(known.result(0)))
    turn(driver)


def submit(driver: Driver, name: str = "a", **more: object) -> JobRecord:
    answer = driver.submit(spec(name, **more), "ann")  # type: ignore[arg-type]
    turn(driver)
    return answer.result(0)


def state(driver: Driver, record: JobRecord) -> JobState:
    found = driver.open_record(record.id) or driver.store.job(record.id)
    assert found is not None
    return found.state


def kinds(driver: Driver, record: JobRecord) -> list[str]:
    return [entry.kind for entry in driver.store.log(job_id=record.id)]


# -- what was given up ends before others begin -------------------------------------------


def test_a_job_that_lost_a_device_begins_elsewhere_only_when_nothing_of_it_is_left(
    tmp_path: Path,
) -> None:
    world = make_world()
    driver = opened(tmp_path, world)
    record = submit(driver, gpus=2)
    work(driver)
    (ran_on,) = world.running[Attempt(record.id, 1, record.uid)].machines

    world.see(without(world.machines[ran_on], 1))
    turn(driver, 2)

    assert kinds(driver, record)[-2:] == ["Requeue", "Start"]
    assert [one.attempt.number for one in world.asked] == [1]  # a stop, and no begin
    work(driver)
    assert list(world.running) == [Attempt(record.id, 2, record.uid)]


def test_nobody_gets_the_devices_of_a_job_that_was_given_up_and_still_runs(
    tmp_path: Path,
) -> None:
    world = make_world([machine("m0")])
    driver = opened(tmp_path, world)
    submit(driver, "old", gpus=2)
    work(driver)
    world.see(without(world.machines[FIRST], 1))
    turn(driver)

    new = submit(driver, "new", gpus=1)

    assert state(driver, new) is JobState.STARTING
    assert Attempt(new.id, 1, new.uid) not in {one.attempt for one in world.asked}
    work(driver)
    assert list(world.running) == [Attempt(new.id, 1, new.uid)]


def test_a_job_can_be_cancelled_while_it_waits_for_the_end_of_another(tmp_path: Path) -> None:
    world = make_world([machine("m0")])
    driver = opened(tmp_path, world)
    submit(driver, "old", gpus=2)
    work(driver)
    world.see(without(world.machines[FIRST], 1))
    turn(driver)
    new = submit(driver, "new", gpus=1)

    driver.cancel(new.id, "ann")
    turn(driver, 2)

    assert state(driver, new) is JobState.CANCELLED
    work(driver)
    assert not world.begun[Attempt(new.id, 1, new.uid)]


def test_a_request_of_a_dead_server_does_not_begin_beside_the_next(tmp_path: Path) -> None:
    world = make_world()
    first = opened(tmp_path, world)
    record = submit(first, gpus=2)
    (ran_on,) = {spot.machine for one in world.asked for spot in one.launch.placement.spots}  # type: ignore[union-attr]
    first.engine.stop = lambda attempt, how: None  # type: ignore[method-assign]
    world.see(without(world.machines[ran_on], 1))
    turn(first)  # it is given up, and the server dies before it says so to the engine

    second = opened(tmp_path, world)
    work(second)
    work(second)

    assert Attempt(record.id, 1, record.uid) not in world.running
    assert sum(world.begun.values()) == 1


# -- reports that come twice, late or not at all ------------------------------------------


def test_what_goes_with_its_machine_runs_again_whichever_report_comes_first(
    tmp_path: Path,
) -> None:
    world = make_world()
    driver = opened(tmp_path, world)
    record = submit(driver, gpus=2)
    work(driver)
    attempt = Attempt(record.id, 1, record.uid)
    (ran_on,) = world.running[attempt].machines
    world.end(attempt, Ended(attempt, None, "lost"), "")

    driver._inbox.put(Ended(attempt, None, "lost"))
    turn(driver)
    del world.machines[ran_on]
    driver._inbox.put(MachineGone(ran_on))
    turn(driver)
    work(driver)

    assert "Requeue" in kinds(driver, record)
    (again,) = world.running
    assert again.job_id == record.id


def test_a_look_that_began_before_a_machine_joined_does_not_take_it_away(
    tmp_path: Path,
) -> None:
    world = make_world([machine("m0")])
    driver = opened(tmp_path, world)
    known = driver.attempts()
    turn(driver)
    seen = driver.engine.observe(known.result(0))
    world.see(machine("m1"))
    turn(driver)

    driver.observed(seen)
    turn(driver)

    assert set(driver.snapshot().machines.known) == {FIRST, SECOND}


def test_a_withdrawal_that_was_lost_is_made_good_by_a_look(tmp_path: Path) -> None:
    world = make_world()
    driver = opened(tmp_path, world)
    world.want(Wanted("key-1", spec(), "eve"))
    turn(driver)
    work(driver)
    (record,) = driver.open_records()
    assert record.key == "key-1"
    world.wanted.clear()

    look(driver)
    work(driver)

    assert state(driver, record) is JobState.CANCELLED


def test_a_job_that_came_through_the_engine_is_one_job_however_often_it_is_told(
    tmp_path: Path,
) -> None:
    world = make_world()
    driver = opened(tmp_path, world)
    for _ in range(2):
        world.want(Wanted("key-1", spec(), "eve"))
        turn(driver)
    look(driver)

    assert len(driver.open_records()) == 1
    assert world.asked[0].launch is not None
    assert world.asked[0].launch.origin.key == "key-1"


def test_a_growth_that_nobody_heard_of_is_asked_for_again(tmp_path: Path) -> None:
    world = make_world([machine("m0")])
    driver = opened(tmp_path, world)
    single = submit(driver, "single")
    work(driver)
    gang = submit(driver, "gang", gang={"nodes": 2, "min": 1})
    work(driver)
    world.finish(Attempt(single.id, 1, single.uid))
    turn(driver)
    world.asked.clear()  # the request to grow never arrives

    look(driver)
    work(driver)

    grown = driver.open_record(gang.id)
    assert grown is not None
    assert grown.growing == 0
    assert world.running[Attempt(gang.id, 1, gang.uid)] == grown.placement


def test_a_gang_that_was_growing_when_its_server_died_goes_on_to_grow(tmp_path: Path) -> None:
    world = make_world([machine("m0")])
    first = opened(tmp_path, world)
    single = submit(first, "single")
    work(first)
    gang = submit(first, "gang", gang={"nodes": 2, "min": 1})
    work(first)
    world.finish(Attempt(single.id, 1, single.uid))
    turn(first)
    world.asked.clear()

    second = opened(tmp_path, world)
    work(second)

    grown = second.open_record(gang.id)
    assert grown is not None
    assert "Grown" in kinds(second, gang)
    assert world.running[Attempt(gang.id, 1, gang.uid)] == grown.placement


def test_a_growth_that_failed_while_no_server_was_there_is_given_back(tmp_path: Path) -> None:
    world = make_world([machine("m0")])
    first = opened(tmp_path, world)
    single = submit(first, "single")
    work(first)
    gang = submit(first, "gang", gang={"nodes": 2, "min": 1})
    work(first)
    world.finish(Attempt(single.id, 1, single.uid))
    turn(first)
    world.asked.clear()

    second = opened(tmp_path, world)
    driver_hears = GiveBack(NeverGrew(Attempt(gang.id, 1, gang.uid), 1, "There was no room."))
    second._inbox.put(driver_hears)  # as it does half a minute after the report
    turn(second)

    assert "GrowFailed" in kinds(second, gang)
    second._state.scheduler.check()


# -- the engine owns the truth ------------------------------------------------------------


def test_a_server_without_its_store_takes_up_what_runs(tmp_path: Path) -> None:
    world = make_world(keeps_record=True)
    first = opened(tmp_path / "one", world)
    world.want(Wanted("key-1", spec("wanted"), "eve"))
    turn(first)
    asked = submit(first, "asked")
    work(first)
    before = {one.id: one.placement for one in first.open_records()}

    second = opened(tmp_path / "two", world)
    turn(second)
    new = submit(second, "new")

    assert {one.id: one.placement for one in second.open_records()} | before == {
        one.id: one.placement for one in second.open_records()
    }
    assert kinds(second, asked) == ["Recovered"]
    assert new.id == "new-1000001"
    world.finish(Attempt(asked.id, 1, asked.uid))
    turn(second)
    assert state(second, asked) is JobState.SUCCEEDED
    assert [one for one in second.open_records() if one.key == "key-1"]


def test_a_server_without_its_store_does_not_use_the_number_of_a_growth_again(
    tmp_path: Path,
) -> None:
    world = make_world([machine("m0", gpus=3)])
    world.keeps_record = True
    first = opened(tmp_path / "one", world)
    singles = [submit(first, f"single{number}") for number in range(2)]
    work(first)
    gang = submit(first, "gang", gang={"nodes": 3, "min": 1})
    work(first)
    world.finish(Attempt(singles[0].id, 1, singles[0].uid))
    turn(first)
    work(first)

    second = opened(tmp_path / "two", world)
    world.finish(Attempt(singles[1].id, 1, singles[1].uid))
    turn(second)
    work(second)

    grown = second.open_record(gang.id)
    assert grown is not None
    assert (grown.growing, grown.growth) == (0, 2)
    assert world.running[Attempt(gang.id, 1, gang.uid)] == grown.placement
    assert world.running[Attempt(gang.id, 1, gang.uid)].instances == 3


def test_an_older_copy_of_the_store_learns_of_the_attempt_that_runs(tmp_path: Path) -> None:
    world = make_world(keeps_record=True)
    first = opened(tmp_path / "one", world)
    record = submit(first)
    first.store.close()
    (tmp_path / "two").mkdir()
    old = (tmp_path / "one" / "state.db").read_bytes()
    first = opened(tmp_path / "one", world)  # its first attempt was never begun
    work(first)
    (runs,) = world.running
    assert runs == Attempt(record.id, 2, record.uid)
    (tmp_path / "two" / "state.db").write_bytes(old)

    second = opened(tmp_path / "two", world)

    found = second.open_record(record.id)
    assert found is not None
    assert (found.state, found.attempt) == (JobState.RUNNING, 2)


# -- drains -------------------------------------------------------------------------------


def test_a_machine_that_is_away_can_be_undrained(tmp_path: Path) -> None:
    world = make_world()
    driver = opened(tmp_path, world)
    driver.drain(FIRST, "op")
    turn(driver)
    world.vanish(FIRST, Random(0))
    turn(driver)

    answer = driver.drain(FIRST, "op", drained=False)
    unknown = driver.drain(MachineId("m9"), "op", drained=False)
    turn(driver)

    assert answer.result(0) is None
    assert isinstance(unknown.exception(0), NoSuchMachine)
    world.see(machine("m0"))
    turn(driver)
    assert not driver.snapshot().machines.drained


class FailsOnce(Store):
    """A store that loses the next commit with a drain."""

    fails = True

    def commit(self, *given: object, **more: object) -> None:
        if self.fails and given[3:] and given[3]:
            self.fails = False
            raise StoreFailed("The disk is full.")
        super().commit(*given, **more)  # type: ignore[arg-type]


def test_a_drain_that_was_not_stored_is_not_in_force(tmp_path: Path) -> None:
    store = FailsOnce(f"sqlite:///{tmp_path / 'state.db'}")
    driver = opened(tmp_path, make_world(), store=store)

    answer = driver.drain(FIRST, "op")
    turn(driver)

    with pytest.raises(Exception, match="The disk is full"):
        answer.result(0)
    assert not driver.snapshot().machines.drained
    assert JobId(FIRST) not in {row.machine_id for row in store.drains()}


def test_a_device_that_is_lost_is_not_given_away(tmp_path: Path) -> None:
    world = make_world([machine("m0", gpus=1)])
    driver = opened(tmp_path, world)
    world.see(without(world.machines[FIRST], 0))
    turn(driver)
    assert world.machines[FIRST].device(0) == Device("EMULATED", 16_384, 0)

    record = submit(driver, gpus=1)

    assert state(driver, record) in {JobState.QUEUED, JobState.REFUSED}
    assert not world.asked
