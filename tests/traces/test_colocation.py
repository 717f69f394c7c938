from pathlib import Path

import numpy as np
import pytest

from interlane.model import InvalidFile
from interlane.testing.coruns import crowded
from interlane.traces import colocation
from interlane.traces.colocation import gpulet, lucid, multiway, own
from interlane.traces.data import data_dir


@pytest.fixture(scope="module")
def published() -> Path:
    found = data_dir(None)
    if found is None:
        pytest.skip("the published data are not at hand")
    return found


def test_own_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = crowded(5)
    own.write(made, tmp_path)
    found = colocation.read(tmp_path)
    assert found.workloads == made.workloads
    assert found.families == made.families
    np.testing.assert_allclose(found.values, made.values, rtol=1e-5)
    for way, runs in made.coruns.items():
        for one, other in zip(found.coruns[way], runs, strict=True):
            assert one[:3] == other[:3]
            assert one.throughput == pytest.approx(other.throughput, rel=1e-5)


def test_a_ratio_that_cannot_be_is_named_with_its_line(tmp_path: Path) -> None:
    own.write(crowded(3), tmp_path)
    path = tmp_path / own.CORUNS
    lines = path.read_text().splitlines()
    lines[4] = ",".join([*lines[4].split(",")[:-1], "-0.5"])
    path.write_text("\n".join(lines))
    with pytest.raises(InvalidFile, match=r"coruns.csv, line 5: retained is '-0.5'"):
        colocation.read(tmp_path)


def test_lucid_has_one_row_a_direction_and_solo_runs_without_pairs(tmp_path: Path) -> None:
    (tmp_path / lucid.PAIRS).write_text(
        "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n"
        "VGG,C,32,0,0.9,VGG,C,32,0,0.8\nVGG,C,32,0,0.7,PPO,G,64,1,0.6\n"
    )
    (tmp_path / lucid.SOLO).write_text(
        "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem\n"
        "VGG,C,32,0,100,50,40,1000\nBERT,S,32,0,80,99,62,20000\n"
    )
    found = colocation.read(tmp_path)
    (runs,) = found.coruns.values()
    assert {run[1:] for run in runs} == {
        ("VGG/C/32", "VGG/C/32", 0.9),
        ("VGG/C/32", "PPO/G/64/amp", 0.7),
        ("PPO/G/64/amp", "VGG/C/32", 0.6),
    }
    assert found.workloads == ("BERT/S/32", "PPO/G/64/amp", "VGG/C/32")
    assert np.isnan(found.values[0, 1]).all()


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "workloads", "coruns"),
    [("lucid", 66, 2720), ("gavel", 26, 1881), ("tally", 8, 180), ("gpu-let", 100, 0)],
)
def test_published_sets_have_as_many_rows_as_they_should(
    name: str, workloads: int, coruns: int, published: Path
) -> None:
    found = colocation.read(published / colocation.FOLDERS[name])
    assert (len(found.workloads), found.count) == (workloads, coruns)


@pytest.mark.data
def test_the_multiway_curve_bends_upwards(published: Path) -> None:
    small, *_ = multiway.read(published / multiway.FOLDER)
    assert small.engines == (1, 2, 3, 4, 6, 8)
    assert small.slow_down[-1] > 1 + 7 * (small.slow_down[1] - 1)


@pytest.mark.data
def test_gpulets_line_slows_down_whoever_shares_a_full_cache(published: Path) -> None:
    folder = published / colocation.FOLDERS["gpu-let"]
    line = gpulet.line(folder, "RTX2080TI")
    idle, busy = np.zeros(5), np.array([0.5, 0.9, 0.9, 0.5, 3.0])
    assert line.slow_down(busy, busy) > line.slow_down(busy, idle) > line.slow_down(idle, idle)
