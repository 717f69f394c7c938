import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.model import InvalidFile
from interlane.predict.slowdown.multiway import Crowd, SuperAdditive, WeightedSum, fits
from interlane.predict.slowdown.online import Alarm, Online
from interlane.predict.slowdown.store import ModelPart, SlowdownModel, load, save, trained
from interlane.predict.slowdown.table import HALF_LIFE_S, CellBasis, SlowdownTable
from interlane.testing.coruns import crowded_pairs

PAIRS = crowded_pairs(8)
KNOWN = PAIRS.where((PAIRS.couples % 3 > 0) & (PAIRS.victim < 7) & (PAIRS.aggressor < 7))
"""Two thirds of the pairs; nobody was measured beside w7."""


@pytest.fixture(scope="module")
def part() -> ModelPart:
    return trained(KNOWN)


@pytest.fixture
def table(part: ModelPart) -> SlowdownTable:
    return trained(KNOWN).table


def test_a_measured_pair_is_read_as_it_was_measured(table: SlowdownTable) -> None:
    row = 0
    cell = int(KNOWN.gpu[row]), int(KNOWN.victim[row]), int(KNOWN.aggressor[row])
    found = table.read(*cell)
    assert found.basis is CellBasis.MEASURED
    assert found.throughput == pytest.approx(KNOWN.throughput[row], abs=0.05)
    assert found.lower < found.throughput


def test_a_workload_that_was_only_run_alone_gets_the_hinge(table: SlowdownTable) -> None:
    assert table.read(0, 7, 0).basis is CellBasis.HINGE


def test_a_gpu_type_never_measured_gets_the_worst_of_those_that_were(
    table: SlowdownTable,
) -> None:
    found = table.read(table.gpu("H100"), 0, 1)
    assert found.basis is CellBasis.OTHER_GPU
    assert found.lower == table.lower[:, 0, 1].min()


@given(gpu=st.integers(-1, 0), victim=st.integers(-1, 7), aggressor=st.integers(-1, 7))
def test_reading_never_raises_and_never_promises_more_than_is_estimated(
    part: ModelPart, gpu: int, victim: int, aggressor: int
) -> None:
    found = part.table.read(gpu, victim, aggressor)
    assert 0 < found.lower <= found.throughput * (1 + 1e-9)


def test_bounds_for_schedulers_have_a_row_for_the_unknown(table: SlowdownTable) -> None:
    padded = table.padded(0)
    assert padded.shape == (9, 9)
    assert padded[-1, 0] == table.read(0, -1, 0).lower


def test_old_measurements_count_for_less(table: SlowdownTable) -> None:
    before = table.mean[0, 7, 0]
    table.measured(0, 7, 0, 0.5, now_s=0.0)
    table.refresh(0, now_s=0.0)
    fresh = table.mean[0, 7, 0]
    table.refresh(0, now_s=20 * HALF_LIFE_S)
    assert abs(fresh - np.log(0.5)) < abs(before - np.log(0.5))
    assert abs(table.mean[0, 7, 0] - before) < 0.01


def test_a_measured_co_run_teaches_about_other_pairs_of_the_same_workload(
    table: SlowdownTable,
) -> None:
    online = Online(table)
    before = table.mean[0, 7, 5]
    for aggressor in range(5):
        online.learn(0, 7, aggressor, 0.4 * float(np.exp(table.prior[0, 7, aggressor])), 0.0)
    assert table.mean[0, 7, 5] < before - 0.05


@given(st.floats(allow_nan=True, allow_infinity=True), st.integers(-1, 7))
def test_nonsense_is_not_learned(part: ModelPart, throughput: float, victim: int) -> None:
    if np.isfinite(throughput) and throughput > 0 and victim >= 0:
        return
    online = Online(part.table)
    assert online.learn(0, victim, 1, throughput, 0.0)
    assert online.since_fit == 0


def test_the_alarm_rings_when_everything_is_slower_than_promised(table: SlowdownTable) -> None:
    online = Online(table)
    for row in np.random.default_rng(0).permutation(len(PAIRS))[:12]:
        online.learn(0, int(PAIRS.victim[row]), int(PAIRS.aggressor[row]), 0.05, 0.0)
    assert online.alarm.rings
    assert online.is_due


def test_the_alarm_is_silent_at_the_promised_rate() -> None:
    alarm = Alarm()
    for step in range(1000):
        alarm.learn(missed=step % 10 == 0)
    assert not alarm.rings


# -- more than two --------------------------------------------------------------------


@given(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=8), st.floats(0.5, 30.0))
def test_a_crowd_is_never_faster_than_beside_its_worst_member(
    pairwise: list[float], measured: float
) -> None:
    rule, crowd = SuperAdditive(), Crowd(tuple(pairwise), {"sm_active": 1.5})
    rule.learn(crowd, measured)
    assert rule.slow_down(crowd) >= max(pairwise)


def test_both_rules_begin_as_a_plain_sum() -> None:
    crowd = Crowd((1.2, 1.3))
    for rule in (WeightedSum(), SuperAdditive()):
        assert rule.slow_down(crowd) == pytest.approx(1.5)


def test_only_ours_learns_a_curve_that_bends_upwards() -> None:
    # 1 + 0.1 for each neighbour + 0.05 for each two of them.
    curve = {n: 1 + 0.1 * (n - 1) + 0.05 * (n - 1) * (n - 2) / 2 for n in range(2, 9)}
    crowds = {n: Crowd((1.1,) * (n - 1)) for n in curve}
    ours, smore = SuperAdditive(), WeightedSum()
    for n in (2, 3, 4):
        ours.learn(crowds[n], curve[n])
        smore.learn(crowds[n], curve[n])
    assert ours.slow_down(crowds[8]) == pytest.approx(curve[8], rel=0.05)
    assert smore.slow_down(crowds[8]) < 0.8 * curve[8]


def test_memory_and_host_threads_are_hard_limits() -> None:
    assert fits((0.5, 0.4), (4, 4), 8)
    assert not fits((0.7, 0.4), (4, 4), 8)
    assert not fits((0.5, 0.4), (8, 4), 8)


# -- files ----------------------------------------------------------------------------


@pytest.fixture
def stored(part: ModelPart, tmp_path: Path) -> Path:
    path = tmp_path / "m.ildeg"
    save(SlowdownModel({"side-by-side/training": part}, {"co_runs": len(KNOWN)}), path)
    return path


def test_a_stored_model_estimates_and_reads_as_before(part: ModelPart, stored: Path) -> None:
    found = load(stored).part("side-by-side/training")
    np.testing.assert_array_equal(
        found.model.predict(PAIRS).mean, part.model.predict(PAIRS).mean
    )
    np.testing.assert_allclose(found.table.lower, part.table.lower)


def test_a_damaged_file_is_refused_in_a_sentence(stored: Path) -> None:
    whole = bytearray(stored.read_bytes())
    whole[-100] ^= 0xFF
    stored.write_bytes(whole)
    with pytest.raises(InvalidFile, match="damaged or was changed, train it again"):
        load(stored)


def test_a_table_of_another_version_is_refused_in_a_sentence(stored: Path) -> None:
    line, _, payload = stored.read_bytes().partition(b"\n")
    newer = json.dumps(json.loads(line) | {"version": 2}).encode()
    stored.write_bytes(newer + b"\n" + payload)
    with pytest.raises(InvalidFile, match="version 2, but this interlane reads version 1"):
        load(stored)


def test_a_duration_model_is_no_slowdown_model(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b'{"format": "interlane-duration-model", "version": 1}\n')
    with pytest.raises(InvalidFile, match="no slowdown model"):
        load(path)
