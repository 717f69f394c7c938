"""The gateway on an event loop whose time is simulated."""

from random import Random
from typing import Any

from interlane.live.files.function import FunctionSpec
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
