"""What ``up --engine`` may name, and which options belong to which engine."""

from dataclasses import asdict

import pytest

from interlane.cli.up import UpOptions
from interlane.model import InvalidInput
from interlane.wiring.engines import engine_of

USUAL = asdict(UpOptions())


def test_an_engine_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"'nomad'.*local"):
        engine_of("nomad", USUAL, USUAL)


def test_an_engine_takes_the_options_that_are_its_own() -> None:
    make = engine_of("local", {**USUAL, "devices": "cpu:3"}, USUAL)

    words = make.__self__  # type: ignore[attr-defined]
    assert (words.devices, words.turns) == ("cpu:3", USUAL["turns"])


def test_an_option_of_another_engine_is_refused() -> None:
    with pytest.raises(InvalidInput, match="--partition is an option of --engine slurm"):
        engine_of("local", {**USUAL, "partition": "gpu"}, USUAL)
    with pytest.raises(InvalidInput, match="--devices is an option of --engine local"):
        engine_of("slurm", {**USUAL, "devices": "cpu:2"}, USUAL)
