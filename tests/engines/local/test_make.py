"""What is worth saying of devices before a server runs."""

from pathlib import Path

from interlane.engines.local.accounts import Accounts
from interlane.engines.local.launch import JobBounds
from interlane.engines.local.make import local


def greeting(folder: Path, devices: str) -> str | None:
    return local(folder, devices, "fair", "turns", 1.0, Accounts(), JobBounds()).greeting


def test_devices_that_are_larger_than_the_machine_are_told(tmp_path: Path) -> None:
    said = greeting(tmp_path, "cpu:2:900TB")

    assert said is not None
    assert said.startswith("Each emulated device has 818.5 TiB, but this machine has ")
    assert greeting(tmp_path, "cpu:2:1GB") is None
