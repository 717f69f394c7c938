"""Long scripts of faults break no promise; ``make faults`` plays five hundred of them."""

import sys

import pytest

from interlane.testing import faults
from interlane.testing.contract import ContractBroken


@pytest.mark.parametrize("part", faults.PARTS)
def test_long_scripts_break_no_promise(part: str) -> None:
    for seed in range(3):
        found = faults.played(seed, part)

        assert found.broken is None
        assert found.events > faults.EVENTS / len(faults.PARTS) * 0.8


@pytest.mark.parametrize("part", faults.PARTS)
def test_a_seed_plays_the_same_way_again(part: str) -> None:
    assert faults.played(7, part) == faults.played(7, part)


def test_a_script_that_fails_says_how_to_play_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(seed: int, events: int) -> int:
        raise ContractBroken("every job ends", f"script {seed} of {events} events")

    def here(seeds: range, parts: tuple[str, ...], events: int) -> "list[faults.ScriptResult]":
        return [faults.played(seed, part, events) for seed in seeds for part in parts]

    monkeypatch.setattr(faults, "PARTS", {"cluster": breaks})
    monkeypatch.setattr(faults, "play_all", here)
    monkeypatch.setattr(sys, "argv", ["faults", "--first", "7", "--seeds", "1"])

    assert faults.main() == 1

    said = capsys.readouterr().out
    assert "Seed 7, cluster: ContractBroken: every job ends: script 7 of 2000 events" in said
    assert "--first 7 --seeds 1 --events 2000 --part cluster" in said


def test_a_function_that_is_deleted_while_calls_wait_for_a_place_hurts_nobody() -> None:
    assert faults.played(474, "functions").broken is None
