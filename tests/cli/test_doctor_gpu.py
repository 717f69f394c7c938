"""``interlane doctor --gpu`` on a stand-in for NVIDIA's driver, with real trainings."""

import json
from pathlib import Path

import pynvml
import pytest
from tests.cli.conftest import Call

from interlane.device.self_test.checks import differences, overlaps, read_gpus
from interlane.mig.layouts import SlicePlace
from interlane.mig.profiles import gpu_model
from interlane.testing.nvidia import NvidiaHost


@pytest.mark.timeout(600)
def test_the_self_test_says_what_holds_and_that_no_gpu_is_behind_it(
    call: Call, nvidia: NvidiaHost, tmp_path: Path
) -> None:
    nvidia.add("A100-40GB", sliced=True, layout=[SlicePlace(0, "3g.20gb")], uuid="GPU-secret")
    file = tmp_path / "report.json"

    said = call("doctor", "--gpu", "--train", "1.5", "--report", file)

    assert said.code == 0
    assert "a stand-in for NVIDIA's driver answered" in said.out
    report = json.loads(file.read_text())
    held = {one["name"]: one["holds"] for one in report["checks"]}
    assert report["stand_in"]
    assert (held["driver"], held["mig profiles"], held["lanes"], held["memory cap"]) == (
        True,
        True,
        True,
        True,
    )
    lanes = next(one for one in report["checks"] if one["name"] == "lanes")["figures"]
    assert lanes["overlaps"] == 0
    assert min(lanes["steps_shared"]) > 0
    assert "GPU-secret" not in file.read_text()
    (gpu,) = report["gpus"]
    assert (gpu["name"], gpu["mig_mode"], gpu["slices"]) == ("NVIDIA A100-SXM4-40GB", [1, 1], 1)


def test_without_a_driver_the_self_test_says_so(call: Call, nvidia: NvidiaHost) -> None:
    nvidia.fail("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED, times=-1)

    said = call("doctor", "--gpu")

    assert said.code == 2
    assert "driver does not answer (Driver Not Loaded)" in said.err


def test_what_a_driver_does_not_tell_is_named_and_the_rest_is_there(nvidia: NvidiaHost) -> None:
    nvidia.add(None)
    nvidia.fail("nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_NO_PERMISSION, times=-1)

    (gpu,), _ = read_gpus()

    assert gpu["missing"]["power_mw"] == "Insufficient Permissions"
    assert gpu["missing"]["mig_mode"] == "Not Supported"
    assert (gpu["name"], gpu["memory_mib"], gpu["capability"]) == ("Tesla T4", 15_360, [7, 5])


def test_a_driver_that_offers_other_slices_than_the_catalogue_is_reported(
    nvidia: NvidiaHost,
) -> None:
    nvidia.add("A100-40GB")
    lines = nvidia.state.read_text().replace(
        "3g.20gb\t3\t4\t2\t19968", "3g.20gb\t3\t4\t2\t19000"
    )
    nvidia.state.write_text(lines.replace("1g.10gb", "1g.11gb"))

    (gpu,), _ = read_gpus()

    assert list(differences(gpu_model("A100-40GB"), gpu["profiles"])) == [
        "A100-40GB does not offer 1g.10gb",
        "3g.20gb of A100-40GB: memory_mib is 19000, not 19968",
        "A100-40GB offers 1g.11gb, which the catalogue does not have",
    ]


def test_steps_that_overlap_are_seen() -> None:
    assert overlaps([[(0.0, 1.0), (2.0, 3.0)], [(1.0, 2.0), (3.0, 4.0)]]) == 0
    assert overlaps([[(0.0, 1.0), (2.0, 3.0)], [(0.5, 2.0), (3.0, 4.0)]]) == 1
