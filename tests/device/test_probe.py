from dataclasses import replace

import pytest

from interlane.device import probe
from interlane.device.nvml import NvmlGpu, Slice, gpus
from interlane.device.probe import promises
from interlane.testing.nvml import Card, CardSlice, FakeNvml


def test_gpus_are_described_as_the_driver_knows_them() -> None:
    part = CardSlice("A100 MIG 1g.10gb", "MIG-1", 10)
    nvml = FakeNvml(
        [Card("A100", 80, 3, True, "GPU-a", (None, part)), Card("T4", 16, uuid="GPU-t")]
    )

    assert gpus(nvml) == [
        NvmlGpu("A100", 80, 3, True, "GPU-a", (Slice(part.name, "MIG-1", 10),)),
        NvmlGpu("T4", 16, 0, False, "GPU-t"),
    ]
    assert nvml.calls == ["init", "shutdown"]


def test_the_library_is_closed_when_a_gpu_fails() -> None:
    nvml = FakeNvml([Card("A100", 80)])
    nvml.nvmlDeviceGetName = lambda handle: 1 / 0  # type: ignore[method-assign, assignment, return-value]

    with pytest.raises(ZeroDivisionError):
        gpus(nvml)
    assert nvml.calls == ["init", "shutdown"]


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
