from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from interlane.device import probe
from interlane.device.probe import Gpu, gpus, promises


class FakeError(Exception):
    pass


@dataclass
class FakeNvml:
    """The names of ``pynvml`` over a list of GPUs; ``mig`` None means not supported."""

    cards: Sequence[tuple[str, int, int, bool | None]] = ()
    NVMLError: type[Exception] = FakeError
    calls: list[str] = field(default_factory=list)

    def nvmlInit(self) -> None:
        self.calls.append("init")

    def nvmlShutdown(self) -> None:
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.cards[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        _, total, used, _ = self.cards[handle]
        return SimpleNamespace(total=total, used=used)

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        mig = self.cards[handle][3]
        if mig is None:
            raise FakeError("not supported")
        return int(mig), 0


def test_gpus_are_described_as_the_driver_knows_them() -> None:
    nvml = FakeNvml([("A100", 80, 3, True), ("T4", 16, 0, None)])

    assert gpus(nvml) == [Gpu("A100", 80, 3, mig=True), Gpu("T4", 16, 0, mig=False)]
    assert nvml.calls == ["init", "shutdown"]


def test_the_library_is_closed_when_a_gpu_fails() -> None:
    nvml = FakeNvml([("A100", 80, 3, True)])
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
