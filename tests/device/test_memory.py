from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.device.memory import (
    MOST_BETWEEN,
    MOST_PROGRAMS,
    WINDOW_RUNS,
    WINDOW_SAMPLES,
    MemoryMeter,
    ProgramKey,
    Programs,
    after_overrun,
    program_of,
    with_margin,
)
from interlane.device.needs import JobMemory
from interlane.lanes.actions import MemoryDemand
from interlane.testing.device import FakeBackend

MIB = 1 << 20
A = ProgramKey("a", "s")


def iterate(
    meter: MemoryMeter, backend: FakeBackend, ephemeral: int, times: int
) -> list[MemoryDemand]:
    """Run iterations that need so much in passing; return what was measured."""
    measured = []
    for _ in range(times):
        backend.allocate(ephemeral)
        backend.free(ephemeral)
        measured.append(meter.boundary())
    return [demand for demand in measured if demand is not None]


def test_persistent_is_live_at_the_boundary_and_ephemeral_the_peak_above_it() -> None:
    backend = FakeBackend(live_bytes=30)
    meter = MemoryMeter(backend)

    assert iterate(meter, backend, 70, times=4) == [MemoryDemand(30, 70)]


def test_what_a_job_needed_to_get_going_is_not_its_need() -> None:
    backend = FakeBackend()
    meter = MemoryMeter(backend)
    iterate(meter, backend, 900, times=1)

    assert iterate(meter, backend, 100, times=3) == [MemoryDemand(0, 100)]


def test_a_job_is_measured_often_at_first_and_seldom_later() -> None:
    backend = FakeBackend()
    meter = MemoryMeter(backend)

    at = [n for n in range(1, 2000) if iterate(meter, backend, 1, times=1)]

    assert at == [4, 16, 64, *range(256, 2000, MOST_BETWEEN)]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
def test_no_peak_is_missed_between_measurements(needs: Sequence[int]) -> None:
    backend = FakeBackend(live_bytes=5)
    meter = MemoryMeter(backend)
    iterate(meter, backend, 0, times=1)
    for need in needs:
        iterate(meter, backend, need, times=1)

    assert meter.measure() == MemoryDemand(5, max(needs))


def test_a_peak_after_the_last_measurement_is_seen_at_a_glance_and_at_the_end() -> None:
    backend = FakeBackend(live_bytes=30)
    memory = JobMemory(backend)
    for number in range(1, 21):
        backend.allocate(70)
        backend.free(70)
        memory.reached(number)
    assert memory.told == MemoryDemand(30, 70)

    backend.allocate(500)
    backend.free(500)

    assert memory.look() == MemoryDemand(30, 500)
    assert memory.look() is None
    assert memory.last() is None
    backend.allocate(900)
    backend.free(900)
    assert memory.last() == MemoryDemand(30, 900)


def test_a_job_of_one_iteration_tells_at_its_end_what_that_needed() -> None:
    backend = FakeBackend(live_bytes=30)
    memory = JobMemory(backend)
    backend.allocate(400)
    backend.free(400)
    assert memory.reached(1) is None

    assert memory.last() == MemoryDemand(30, 400)


def test_what_was_told_while_a_job_idled_is_replaced_by_what_its_iterations_need() -> None:
    backend = FakeBackend(live_bytes=300)
    memory = JobMemory(backend)
    assert memory.held() == MemoryDemand(300, 0)
    assert memory.is_rough
    backend.free(270)

    told = [memory.reached(number) for number in range(1, 5)]

    assert told == [None, None, None, MemoryDemand(30, 0)]
    assert not memory.is_rough


def test_a_need_that_has_passed_leaves_the_window() -> None:
    backend = FakeBackend()
    meter = MemoryMeter(backend)
    iterate(meter, backend, 900, times=2)

    later = iterate(meter, backend, 100, times=MOST_BETWEEN * (WINDOW_SAMPLES + 1))

    assert later[0] == MemoryDemand(0, 900)
    assert later[-1] == MemoryDemand(0, 100)


def test_a_program_is_admitted_with_what_its_last_runs_needed(tmp_path: Path) -> None:
    programs = Programs(tmp_path / "memory.json")
    assert programs.demand(A) is None
    assert programs.demand(A, MemoryDemand(1, 2)) == MemoryDemand(1, 2)

    programs.learn(A, MemoryDemand(100 * MIB, 10 * MIB))
    programs.learn(A, MemoryDemand(90 * MIB, 20 * MIB))

    kept = Programs(tmp_path / "memory.json")
    assert kept.demand(A) == with_margin(MemoryDemand(100 * MIB, 20 * MIB))


@pytest.mark.parametrize("declared_mib", [5, 500])
def test_an_estimate_wrong_by_ten_times_is_corrected_by_one_run(
    tmp_path: Path, declared_mib: int
) -> None:
    programs = Programs(tmp_path / "memory.json")
    declared = MemoryDemand(declared_mib * MIB, declared_mib * MIB)
    assert programs.demand(A, declared) == declared

    programs.learn(A, MemoryDemand(50 * MIB, 50 * MIB))

    assert programs.demand(A, declared) == with_margin(MemoryDemand(50 * MIB, 50 * MIB))


def test_one_large_run_is_forgotten_when_smaller_ones_have_followed(tmp_path: Path) -> None:
    programs = Programs(tmp_path / "memory.json")
    programs.learn(A, MemoryDemand(0, 900 * MIB))
    for _ in range(WINDOW_RUNS):
        programs.learn(A, MemoryDemand(0, 10 * MIB))

    assert programs.demand(A) == with_margin(MemoryDemand(0, 10 * MIB))


def test_a_program_with_other_numbers_is_estimated_from_its_shape(tmp_path: Path) -> None:
    programs = Programs(tmp_path / "memory.json")
    programs.learn(ProgramKey("lr=0.1", "lr=#"), MemoryDemand(0, 10))

    assert programs.demand(ProgramKey("lr=0.2", "lr=#")) == with_margin(MemoryDemand(0, 10))
    assert programs.demand(ProgramKey("other", "other")) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"version": 1}', '{"version": 2, "programs": {"a": [[1, 2]]}}',
     '{"version": 1, "programs": {"a": [[1]]}}', '{"version": 1, "programs": {"a": [[-1, 2]]}}',
     '{"version": 1, "programs": 7}', '{"version": 1, "programs": {"a": [["x", null]]}}'],
)  # fmt: skip
def test_a_damaged_file_counts_as_nothing_learned(tmp_path: Path, text: str) -> None:
    (tmp_path / "memory.json").write_text(text)
    programs = Programs(tmp_path / "memory.json")
    assert programs.demand(A) is None

    programs.learn(A, MemoryDemand(1, 2))

    assert Programs(tmp_path / "memory.json").demand(A) == with_margin(MemoryDemand(1, 2))


def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    programs = Programs(tmp_path / "no" / "such" / "folder" / "memory.json")

    programs.learn(A, MemoryDemand(1, 2))

    assert programs.demand(A) == with_margin(MemoryDemand(1, 2))


def test_only_so_many_programs_are_kept(tmp_path: Path) -> None:
    programs = Programs(tmp_path / "none" / "memory.json")
    for number in range(MOST_PROGRAMS + 1):
        programs.learn(ProgramKey(str(number), str(number)), MemoryDemand(1, 1))

    assert programs.demand(ProgramKey("0", "0")) is None
    assert programs.demand(ProgramKey("1", "1")) is not None


def test_who_ran_out_of_memory_asks_for_twice_as_much() -> None:
    assert after_overrun(MemoryDemand(10, 50 * MIB)) == MemoryDemand(10, 100 * MIB)
    assert after_overrun(MemoryDemand(10, 0)).ephemeral_bytes > 0


def test_programs_are_alike_by_text_and_arguments(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("one")
    (tmp_path / "copy.py").write_text("one")
    (tmp_path / "other.py").write_text("two")

    def of(*argv: str) -> ProgramKey:
        return program_of(argv, tmp_path)

    first = of("python", "train.py", "--lr", "0.1", "--model=mlp", "--out", "/tmp/a")
    assert (
        of("python3", "-u", "copy.py", "--lr", "0.1", "--model=mlp", "--out", "/tmp/a") == first
    )
    swept = of("python", "train.py", "--lr", "1e-3", "--model=mlp", "--out", "/tmp/b")
    assert swept.exact != first.exact
    assert swept.shape == first.shape
    assert of("python", "train.py", "--model=cnn").shape != of("python", "train.py").shape
    assert of("python", "other.py").shape != of("python", "train.py").shape


@pytest.mark.parametrize(
    "command",
    ["", "python", "python -m pkg", "python -c x=1", "python -m", "python gone.py",
     "python a\0b", "./run", "python -W ignore x"],
)  # fmt: skip
def test_every_command_has_an_identity(tmp_path: Path, command: str) -> None:
    argv = command.split()

    assert program_of(argv, tmp_path) == program_of(argv, tmp_path)


def test_a_module_and_a_script_of_the_same_name_differ(tmp_path: Path) -> None:
    assert program_of(["python", "-m", "a"], tmp_path) != program_of(
        ["python", "-m", "b"], tmp_path
    )
