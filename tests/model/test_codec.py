"""Values of the model are written in one way, and read back as they were."""

import json

import pytest

from interlane.model import (
    Closeness,
    Cluster,
    Demand,
    Device,
    Job,
    JobId,
    LogEntry,
    Logged,
    Machine,
    MachineId,
    MachineJoined,
    Occupied,
    Placement,
    Recovered,
    Refusal,
    Refuse,
    Request,
    SchedulerBuilt,
    Spot,
    Start,
    Submitted,
    TakenGpu,
    Task,
    Ticked,
    Tier,
    one_task,
)
from interlane.model.codec import KINDS, entry_row, plain, row_entry

A = JobId("a")
GANG = Request(
    (
        Task(Demand(2, 500, gpu_types=frozenset({"T4", "A100"})), 3, 1, role="worker"),
        Task(Demand(cpu_milli=100, selectors=frozenset({("zone", "b")})), role="ps"),
    ),
    Closeness(same="rack"),
)
JOB = Job(A, GANG, 1.5, 7, None, "ann", priority=3)
PLACE = Placement((Spot(MachineId("m"), (0, 1)), Spot(MachineId("n"), (), 2, 1)))
MIXED = Machine(
    MachineId("m"), "MIXED", 2, devices=(Device("T4"), Device("A100", 80, 500)),
    labels=(("zone", "b"),),
)  # fmt: skip
WHATS: list[Logged] = [
    Submitted(JOB),
    Recovered(JOB, 2.5, PLACE, 3.25, 1),
    Start(A, PLACE),
    Refuse(A, Refusal(Tier.QUOTA, "too much", "ask less", JobId("b"))),
    MachineJoined(MIXED),
    Occupied(MachineId("m"), 5, gpus=(TakenGpu(0, 250, 7),)),
    SchedulerBuilt(
        Cluster("c", (MIXED,), topology=("zone",)),
        (("order", "fifo"),),
        (MachineId("m"),),
        (Occupied(MachineId("m")),),
        ((GANG, 3), (one_task(Demand(1)), 1)),
    ),
    Ticked(),
]


@pytest.mark.parametrize("what", WHATS, ids=lambda what: type(what).__name__)
def test_an_entry_reads_back_as_it_was_written(what: Logged) -> None:
    entry = LogEntry(3, 4.5, what, {"reason": "so"}, 2)

    row = json.loads(json.dumps(entry_row(entry)))

    assert row_entry(row) == entry


def test_what_has_its_default_is_not_written() -> None:
    assert plain(one_task(Demand(1))) == {"tasks": [{"demand": {"gpus": 1}}]}
    assert plain(Spot(MachineId("m"))) == {"machine": "m"}


def test_every_event_and_action_has_a_name_of_its_own() -> None:
    assert len(KINDS) == 32
    assert {"Submitted", "CancelRequested", "SchedulerBuilt", "Wake"} <= KINDS.keys()


BAD = {
    "an unknown kind": {"kind": "Exploded"},
    "no object": {"what": "[1]"},
    "a missing field": {"what": "{}"},
    "an unknown field": {"what": '{"job_id": "a", "x": 1}'},
    "a value out of range": {
        "kind": "Submitted",
        "what": '{"job": {"id": "a", "request": {"tasks": []}, "submitted_s": 0, "serial": 1}}',
    },
    "broken JSON": {"what": "{"},
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_one_error(case: str) -> None:
    row = {"seq": 9, "at_s": 0.0, "kind": "Finished", "what": '{"job_id": "a"}', "detail": "{}"}

    with pytest.raises(ValueError, match=r"entry 9|Expecting"):
        row_entry({**row, "cycle": 9, **BAD[case]})
