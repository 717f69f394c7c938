from dataclasses import replace

import pynvml
import pytest

from interlane.device import probe
from interlane.device.nvml import NvmlGpu, Slice, gpus
from interlane.device.probe import promises
from interlane.mig.layouts import SlicePlace
from interlane.testing.nvidia import NvidiaHost

GIB = 1 << 30
MIB = 1 << 20


def test_gpus_are_described_as_the_driver_knows_them(nvidia: NvidiaHost) -> None:
    nvidia.add("A100-40GB", sliced=True, layout=[SlicePlace(0, "3g.20gb")], used_mib=3)
    nvidia.add(None, uuid="GPU-t")
    nvidia.note_calls()

    cut, whole = gpus(pynvml)

    assert (cut.name, cut.mig, cut.used_bytes) == ("NVIDIA A100-SXM4-40GB", True, 3 * MIB)
    (part,) = cut.slices
    assert part == Slice("NVIDIA A100-SXM4-40GB MIG 3g.20gb", part.uuid, 19_968 * MIB)
    assert part.uuid.startswith("MIG-")
    assert whole == NvmlGpu("Tesla T4", 15 * GIB, 0, False, "GPU-t")
    assert (nvidia.calls[0], nvidia.calls[-1]) == ("nvmlInit", "nvmlShutdown")


def test_the_library_is_closed_when_a_gpu_fails(nvidia: NvidiaHost) -> None:
    nvidia.add(None)
    nvidia.fail("nvmlDeviceGetName", pynvml.NVML_ERROR_UNKNOWN)
    nvidia.note_calls()

    with pytest.raises(pynvml.NVMLError):
        gpus(pynvml)
    assert (nvidia.calls[0], nvidia.calls[-1]) == ("nvmlInit", "nvmlShutdown")


def test_a_gpu_that_is_lost_hides_no_other(nvidia: NvidiaHost) -> None:
    nvidia.add(None, uuid="GPU-a")
    nvidia.add(None, uuid="GPU-b")
    nvidia.lose(0)

    assert [gpu.uuid for gpu in gpus(pynvml)] == ["GPU-b"]


def test_the_probe_tells_of_gpus(nvidia: NvidiaHost) -> None:
    nvidia.add("A30-24GB", sliced=True)

    found = {one.name: one for one in probe.probe()}["gpus"]

    assert found.holds
    assert found.here.startswith("NVIDIA A30 24 GiB")
    assert found.here.endswith(", MIG")


def test_this_machine_can_share_and_every_finding_says_what_follows() -> None:
    findings = probe.probe()

    assert all(one.here and one.follows for one in findings)
    assert [one.name for one in findings if one.is_needed and not one.holds] == []
    assert {"torch", "hard cap", "peak memory"} <= {one.name for one in findings if one.holds}


def test_promises_shrink_with_what_is_missing() -> None:
    findings = probe.probe()
    without_cap = [
        replace(one, holds=False) if one.name == "hard cap" else one for one in findings
    ]
    without_page = [
        replace(one, holds=False) if one.name == "shared page" else one for one in findings
    ]

    assert "memory enforced" in promises(findings)["lanes on the CPU"]
    assert "memory accounted only" in promises(without_cap)["lanes on the CPU"]
    assert promises(without_page)["lanes on the CPU"] == "not possible here"
