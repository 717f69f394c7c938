"""A job on an emulated slice is slowed down by its lease where nothing else holds it."""

from time import monotonic

import pytest
from tests.device.conftest import ONE_MIB, Stage

from interlane.device import client as clients

PASSES_S = 0.05


def busy() -> None:
    begin_s = monotonic()
    while monotonic() - begin_s < PASSES_S:
        pass


@pytest.mark.parametrize(("pace", "times"), [(500, 1.0), (100, 9.0), (0, None)])
def test_an_iteration_lasts_as_long_as_on_a_part_of_the_device(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, pace: int, times: float | None
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(clients, "sleep", rests.append)
    stage.daemon()

    with stage.client(**ONE_MIB, pace=pace) as job:
        began_s = monotonic()
        job.begin()
        busy()
        job.end()
        took_s = monotonic() - began_s

    if times is None:
        assert rests == []
    else:
        (rest_s,) = rests
        assert times * PASSES_S <= rest_s <= times * took_s


def test_others_wait_while_it_rests(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.daemon()
    with stage.client(**ONE_MIB, pace=100) as job:
        seen = []
        monkeypatch.setattr(
            clients,
            "sleep",
            lambda s: seen.append(stage.status().devices[0].processes[0].state),
        )
        with job.iteration():
            busy()

    assert [one.value for one in seen] == ["running"]
