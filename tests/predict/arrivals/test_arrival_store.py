from pathlib import Path

import numpy as np
import pytest

from interlane.model import InvalidFile
from interlane.predict.arrivals.live import Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.store import ArrivalModel, load, save
from interlane.testing.arrivals import habits

TRACE = habits(4, seed=1)


@pytest.fixture(scope="module")
def models() -> dict[str, ArrivalModel]:
    trees = Trees()
    trees.chance.rounds = trees.size.rounds = 3
    lstm = LsLstm(hidden=4, epochs=1, windows=32, short=6, long=6)
    return {
        "trees": ArrivalModel(trees.fit(TRACE), 600.0, {"functions": 5}),
        "ls-lstm": ArrivalModel(lstm.fit(TRACE), 600.0, {"functions": 5}),
    }


@pytest.mark.parametrize("name", ["trees", "ls-lstm"])
def test_a_model_tells_the_same_after_it_was_stored(
    name: str, models: dict[str, ArrivalModel], tmp_path: Path
) -> None:
    digest = save(models[name], tmp_path / "m")

    found = load(tmp_path / "m")

    assert (found.name, found.slot_s, found.sha256) == (name, 600.0, digest)
    before, after = models[name].forecaster, found.forecaster
    if isinstance(before, Trees) and isinstance(after, Trees):
        told = [one.chance.predict(TRACE.series[1], TRACE) for one in (before, after)]
    else:
        assert isinstance(before, LsLstm)
        assert isinstance(after, LsLstm)
        told = [one.predict(TRACE.series[1], TRACE)[0] for one in (before, after)]
    np.testing.assert_array_equal(told[0], told[1])


def test_a_damaged_or_foreign_file_is_refused_in_a_sentence(
    models: dict[str, ArrivalModel], tmp_path: Path
) -> None:
    path = tmp_path / "m"
    save(models["trees"], path)
    whole = path.read_bytes()
    wrongs = {
        "no arrival model": b"hello",
        "cut short": whole[:-10],
        "does not have the hash": whole[:-1] + bytes([whole[-1] ^ 1]),
        "format version 9": whole.replace(b'"version": 1', b'"version": 9', 1),
    }

    for why, contents in wrongs.items():
        path.write_bytes(contents)
        with pytest.raises(InvalidFile, match=why):
            load(path)


def test_a_network_learns_on_without_forgetting_what_it_was_given(
    models: dict[str, ArrivalModel],
) -> None:
    model = models["ls-lstm"].forecaster
    assert isinstance(model, LsLstm)
    before = {name: value.copy() for name, value in model.weights_.items()}

    told = model.follow(TRACE, 0.7, updates=2)

    assert len(told) == len(TRACE)
    assert all(((chance >= 0) & (chance <= 1)).all() for chance, _ in told)
    for name, value in model.weights_.items():
        np.testing.assert_array_equal(value, before[name])
