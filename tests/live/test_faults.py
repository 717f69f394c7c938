"""Long scripts of faults break no promise; ``make faults`` plays five hundred of them."""

import sys

import pytest

from interlane.testing import faults
from interlane.testing.contract import ContractBroken


def test_long_scripts_break_no_promise() -> None:
    for seed in range(3):
        found = faults.played(seed)

        assert found.broken is None
        assert found.events > faults.EVENTS * 0.8


def test_a_script_that_fails_says_how_to_play_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(make: object, seed: int, steps: int) -> int:
        raise ContractBroken("every job ends", f"script {seed} of {steps} steps")

    monkeypatch.setattr(faults, "check_engine", breaks)
    monkeypatch.setattr(faults, "play_all", lambda seeds, events: map(faults.played, seeds))
    monkeypatch.setattr(sys, "argv", ["faults", "--first", "7", "--seeds", "1"])

    assert faults.main() == 1

    said = capsys.readouterr().out
    assert "Seed 7: ContractBroken: every job ends: script 7 of 800 steps" in said
    assert "--first 7 --seeds 1 --events 2000" in said
