"""The gateway on an event loop whose time is simulated."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from interlane.functions.events import (
    DropReplica,
    JobsHeld,
    LoadReplica,
    QueueReplica,
    SlotPassed,
)
from interlane.functions.scheduler import FunctionScheduler
from interlane.live.files.function import FunctionSpec
from interlane.policy.colocate.catalogue import BOUNDED, make_colocator
from interlane.testing.simulated.functions import FunctionWorld, check_functions


def test_a_function_that_is_deployed_anew_has_no_more_replicas_than_it_may() -> None:
    world = FunctionWorld(Random(0))
    spec = FunctionSpec.model_validate(
        {"name": "f", "handler": "m:f", "replicas": {"max": 1}, "memory": "2GB"}
    )
    world.hang_rate = 1.0  # nobody is ever loaded, so that whoever calls waits

    async def deploy_twice() -> Any:  # noqa: ANN401 - of a simulated module
        await world._open()
        gateway = world._gateway
        await gateway.deploy(spec, "ann", is_admin=False)
        answer = gateway.ask("f", b'{"call": 1}')
        await gateway.deploy(spec, "ann", is_admin=False)
        assert not answer.done()
        return gateway.function("f")

    deployed = world.run(deploy_twice())

    assert deployed.waiting == 1
    assert len(deployed.replicas) == 1


def test_scripts_that_once_broke_a_promise_break_none() -> None:
    for seed in (3, 8, 9):
        assert check_functions(seed, 300) == 300


def test_the_log_of_a_live_run_played_through_a_fresh_scheduler_gives_the_same_actions() -> (
    None
):
    kinds, said = set(), set()
    for seed in (5, 8, 13):
        world = FunctionWorld(Random(seed))
        world.play(250)
        fresh = FunctionScheduler(make_colocator(BOUNDED), slot_s=5.0)
        fresh.restore(world.restored)
        again = [fresh.tell(event, now_s) for now_s, event, _ in world.told]
        assert again == [actions for _, _, actions in world.told]
        kinds |= {type(event) for _, event, _ in world.told}
        said |= {type(action) for actions in again for action in actions}
    assert {JobsHeld, SlotPassed} <= kinds
    assert {LoadReplica, DropReplica, QueueReplica} <= said


def test_what_was_learned_outlives_a_server_that_is_killed() -> None:
    world = FunctionWorld(Random(0))
    world.fail_rate = world.hang_rate = 0.0
    spec = FunctionSpec.model_validate({"name": "f", "handler": "m:f", "memory": "2GB"})

    async def asked_then_killed() -> tuple[Any, Any, Any]:
        await world._open()
        await world._gateway.deploy(spec, "ann", is_admin=False)
        world.acknowledged["f"] = 1
        fresh = world._gateway.scheduler.band("f")
        for _ in range(30):
            await world._ask()
            await asyncio.sleep(5.0)
        await asyncio.sleep(0.1)
        before = world._gateway.scheduler.band("f")
        await world._die()
        return fresh, before, world._gateway.scheduler.band("f")

    fresh, before, after = world.run(asked_then_killed())

    assert fresh.chance < 0.5 < before.chance
    assert after.chance == pytest.approx(before.chance, abs=0.1)


def test_a_model_of_pairs_is_fitted_anew_in_the_background_when_that_is_due() -> None:
    world = FunctionWorld(Random(0))
    fits: list[int] = []

    def fit() -> dict[str, Any]:
        fits.append(1)
        return {}

    async def measured_often() -> Any:  # noqa: ANN401 - of a simulated module
        await world._open()
        gateway = world._gateway
        gateway.settings = replace(gateway.settings, refit=fit)
        model = gateway.scheduler.model
        for online in model._online.values():
            online.since_fit = 1_000
        assert model.is_due
        gateway._end_slot()
        await asyncio.sleep(0.1)
        gateway._end_slot()
        await asyncio.sleep(0.1)
        return model

    model = world.run(measured_often())

    assert fits == [1]
    assert not model.is_due
    assert any(type(event).__name__ == "PairsFitted" for _, event, _ in world.told)
