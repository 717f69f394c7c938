"""What an extender counts and chooses, without a cluster."""

import pytest

from interlane.engines.kubernetes.extender.placing import ExtenderLedger
from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Cluster,
    Demand,
    Machine,
    MachineId,
    Occupied,
    Placement,
    Refusal,
    Spot,
    TakenGpu,
)
from interlane.policy.order import Fifo
from interlane.policy.place import pack
from interlane.policy.policy import Policy

HALF = Demand(gpus=1, gpu_milli=500)


@pytest.fixture
def ledger() -> ExtenderLedger:
    made = ExtenderLedger(Scheduler(Cluster("kubernetes", ()), Policy(Fifo(), pack())))
    for name in ("a", "b"):
        made.see(machine(name), drained=False)
    return made


def machine(name: str, gpus: int = 2) -> Machine:
    labels, taints = (("zone", "1"),), (("key", "value"),)
    return Machine(MachineId(name), "A100", gpus, 8_000, 8_192, labels=labels, taints=taints)


def at(name: str, gpu: int) -> Placement:
    return Placement((Spot(MachineId(name), (gpu,)),))


def test_a_pod_goes_beside_another_where_the_placer_packs(ledger: ExtenderLedger) -> None:
    ledger.hold("1", HALF, at("b", 1))

    assert ledger.fitting(HALF, ["a", "b", "c"]) == {"a", "b"}
    assert ledger.place(HALF, ["a", "b"]) == at("b", 1)
    assert ledger.place(HALF, ["a"]) == at("a", 0)


def test_what_is_held_is_not_free_until_it_is_released(ledger: ExtenderLedger) -> None:
    for gpu in range(2):
        ledger.hold(f"{gpu}", Demand(gpus=1, gpu_milli=600), at("a", gpu))
    ledger.hold("0", Demand(gpus=1), at("b", 0))  # counted already: a pod is seen often

    assert ledger.fitting(HALF, ["a", "b"]) == {"b"}
    assert isinstance(ledger.place(HALF, ["a"]), Refusal)
    ledger.release("1")
    ledger.release("1")
    assert ledger.place(HALF, ["a"]) == at("a", 1)


def test_others_and_cordons_count(ledger: ExtenderLedger) -> None:
    ledger.occupy(Occupied(MachineId("a"), gpus=(TakenGpu(0, 1000), TakenGpu(1, 600))))
    assert ledger.fitting(HALF, ["a", "b"]) == {"b"}
    ledger.see(machine("b"), drained=True)
    assert ledger.fitting(HALF, ["a", "b"]) == set()
    ledger.see(machine("b"), drained=False)
    assert ledger.fitting(HALF, ["a", "b"]) == {"b"}


def test_a_node_that_goes_takes_its_pods_along_and_may_come_back(
    ledger: ExtenderLedger,
) -> None:
    ledger.hold("1", Demand(gpus=2), Placement((Spot(MachineId("a"), (0, 1)),)))
    ledger.lose(MachineId("a"))
    assert ledger.fitting(HALF, ["a", "b"]) == {"b"}
    ledger.release("1")
    ledger.see(machine("a", 3), drained=False)
    assert ledger.fitting(Demand(gpus=3), ["a", "b"]) == {"a"}
    assert ledger.place(Demand(gpus=3), ["a"]) == Placement((Spot(MachineId("a"), (0, 1, 2)),))
