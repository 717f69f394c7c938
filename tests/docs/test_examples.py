"""The placer of the guide keeps the contract of all placers."""

import importlib.util
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.ledger import Ledger
from interlane.model import Job
from interlane.policy.base import Placer
from interlane.testing.build import cluster, job, machine, make, play
from interlane.testing.conformance import check_placer
from interlane.testing.strategies import jobs, ledgers

FILE = Path(__file__).resolve().parents[2] / "examples" / "my_placer.py"


def placer_of_the_guide() -> Callable[..., Placer]:
    spec = importlib.util.spec_from_file_location("my_placer", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["my_placer"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    maker: Callable[..., Placer] = module.Thrifty
    return maker


Thrifty = placer_of_the_guide()


@pytest.mark.parametrize("spare", ["A100", "T4|V100"])
@given(drawn=jobs(), ledger=ledgers(), seed=st.integers(0, 2**32))
def test_the_placer_of_the_guide_keeps_the_contract(
    spare: str, drawn: Job, ledger: Ledger, seed: int
) -> None:
    check_placer(Thrifty(spare), drawn, ledger, seed)


def test_the_placer_of_the_guide_spares_what_it_should() -> None:
    lab = cluster(machine("good", gpus=4, type="A100"), machine("plain", gpus=2))
    anything = [job(name, gpus=1) for name in "abc"]

    log = play(anything, 10.0, make(lab, placer=Thrifty()))

    used = [placement.machines for placement in log.placements]
    assert used == [("plain",), ("plain",), ("good",)]


def test_the_example_exports_are_what_their_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(FILE.with_name("lab.yaml"), tmp_path)
    monkeypatch.chdir(tmp_path)

    runpy.run_path(str(FILE.with_name("make_sacct.py")), run_name="__main__")

    for name in ("april.txt", "may.txt"):
        assert (tmp_path / name).read_text() == FILE.with_name(name).read_text()
    assert not (tmp_path / "make_sacct.csv").exists()
