"""Cluster files: machines that differ, where they are, and what happens to them."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from interlane.model import (
    Cluster,
    Device,
    InvalidFile,
    MachineChanged,
    MachineDrained,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    TakenGpu,
    with_devices,
)
from interlane.testing.strategies import scenarios
from interlane.traces.cluster_file import ClusterScenario, cluster_document, scenario_of
from interlane.traces.clusters import load_cluster, load_scenario

M = "cpus: 4, memory_gib: 8"
TWO = f"machines: [{{name: a, gpus: 2, gpu_type: T4, {M}}}, {{name: b, {M}}}]"


def read(text: str) -> ClusterScenario:
    return scenario_of("lab.yaml", "lab", yaml.safe_load(text))


def cluster_in(text: str) -> Cluster:
    return read(text).cluster


# -- machines -----------------------------------------------------------------------------


def test_machines_have_labels_and_taints() -> None:
    (machine,) = cluster_in(
        f"machines: [{{{M}, labels: {{zone: a, rack: 7}}, taints: {{dedicated: team-a}}}}]"
    )

    assert machine.labels == (("rack", "7"), ("zone", "a"))
    assert machine.taints == (("dedicated", "team-a"),)


def test_a_key_may_have_several_taints() -> None:
    (machine,) = cluster_in(f"machines: [{{{M}, taints: [team=b, team=a]}}]")

    assert machine.taints == (("team", "a"), ("team", "b"))


def test_racks_of_many_machines_are_said_once() -> None:
    cluster = cluster_in(
        f"""
topology: [zone, rack]
machines:
  - {{count: 5, name: x, {M}, labels: {{zone: a, rack: {{prefix: r, size: 2}}}}}}
  - {{count: 2, name: y, {M}, labels: {{zone: b, rack: {{prefix: r, size: 1, first: 3}}}}}}
"""
    )

    racks = [machine.label("rack") for machine in cluster]
    assert racks == ["r0", "r0", "r1", "r1", "r2", "r3", "r4"]
    assert cluster.topology == ("zone", "rack")


def test_devices_of_a_machine_may_differ() -> None:
    (machine,) = cluster_in(
        f"machines: [{{name: odd, {M}, devices: [{{type: T4, count: 2}}, "
        "{type: K40, memory_gib: 12, compute: 300m}]}]"
    )

    assert machine.devices == (
        *([Device("T4", 16_384)] * 2),
        Device("K40", 12_288, 300),
    )
    assert (machine.gpu_type, machine.gpus, machine.gpu_milli) == ("MIXED", 3, 2300)


def test_listed_devices_that_are_alike_are_the_same_machine() -> None:
    listed = cluster_in(f"machines: [{{{M}, devices: [{{type: T4, count: 2}}]}}]")
    counted = cluster_in(f"machines: [{{{M}, gpu_type: T4, gpus: 2}}]")

    assert listed == counted


# -- events -------------------------------------------------------------------------------


def test_events_come_in_order_of_time() -> None:
    scenario = read(
        f"{TWO}\nevents:\n"
        "- {at: 2h, undrain: a}\n"
        "- {at: 1h, drain: a}\n"
        "- {at: 3600, lose: b}\n"
        "- {at: 1d, return: b}\n"
        "- {at: 2d, leave: b}\n"
        "- {at: 2d, occupy: {machine: a, cpus: 1, memory_gib: 2, gpus: {1: 500m}}}\n"
    )

    assert [(one.at_s, one.event) for one in scenario.events] == [
        (3600.0, MachineDrained(MachineId("a"))),
        (3600.0, MachineLost(MachineId("b"))),
        (7200.0, MachineUndrained(MachineId("a"))),
        (86_400.0, MachineReturned(MachineId("b"))),
        (172_800.0, MachineLeft(MachineId("b"))),
        (172_800.0, Occupied(MachineId("a"), 1000, 2048, (TakenGpu(1, 500),))),
    ]


def test_several_machines_join_by_one_entry() -> None:
    scenario = read(f"{TWO}\nevents: [{{at: 1, join: {{count: 2, name: new, {M}}}}}]")

    joined = [one.event for one in scenario.events]
    assert [one.machine.id for one in joined if isinstance(one, MachineJoined)] == [
        "new-0",
        "new-1",
    ]


def test_a_machine_that_left_may_join_again() -> None:
    read(f"{TWO}\nevents: [{{at: 1, leave: b}}, {{at: 2, join: {{name: b, {M}}}}}]")


def test_a_change_says_what_differs() -> None:
    scenario = read(
        f"{TWO}\nevents: [{{at: 1, change: {{name: a, cpus: 2, taints: {{team: x}}}}}}]"
    )

    before, after = scenario.cluster.machines[0], scenario.events[0].event
    assert isinstance(after, MachineChanged)
    assert (after.machine.gpus, after.machine.memory_mib) == (2, before.memory_mib)
    assert (after.machine.cpu_milli, after.machine.taints) == (2000, (("team", "x"),))


def test_a_device_is_lost_and_returns() -> None:
    scenario = read(
        f"{TWO}\nevents: [{{at: 1, lose_device: {{machine: a, gpu: 1}}}}, "
        "{at: 2, return_device: {machine: a, gpu: 1}}]"
    )

    lost, back = (one.event for one in scenario.events)
    assert isinstance(lost, MachineChanged)
    assert isinstance(back, MachineChanged)
    assert [device.compute_milli for device in lost.machine.devices] == [1000, 0]
    assert back.machine == scenario.cluster.machines[0]


def test_types_that_join_later_are_known() -> None:
    scenario = read(
        f"{TWO}\nevents: [{{at: 1, join: {{name: new, gpus: 1, gpu_type: H100, {M}}}}}]"
    )

    assert scenario.cluster.gpu_types == {"T4"}
    assert scenario.gpu_types == {"T4", "H100"}


# -- faults -------------------------------------------------------------------------------

FAULTS = {
    "labels that are a list": (f"machines: [{{{M}, labels: [a]}}]", "labels is"),
    "a label without a value": (f"machines: [{{{M}, labels: {{a: }}}}]", "label a is missing"),
    "a label that is a claim": (f"machines: [{{{M}, labels: {{a: yes}}}}]", "label a is True"),
    "a label whose key is a number": (f"machines: [{{{M}, labels: {{1: a}}}}]", "the key 1"),
    "a label that cannot be shown": (
        f'machines: [{{{M}, labels: {{a: "\\u0007"}}}}]',
        "printable text",
    ),
    "racks of no size": (
        f"machines: [{{{M}, labels: {{rack: {{prefix: r, size: 0}}}}}}]",
        "machine entry 1, label rack: size is 0",
    ),
    "racks of no name": (
        f"machines: [{{{M}, labels: {{rack: {{size: 2}}}}}}]",
        "label rack: prefix is missing",
    ),
    "a taint without a value": (
        f"machines: [{{{M}, taints: [dedicated]}}]",
        "machine entry 1: taint 'dedicated' must have a value, as in dedicated=team-a",
    ),
    "a taint that is null": (f"machines: [{{{M}, taints: {{a: }}}}]", "taint a is missing"),
    "a taint twice": (f"machines: [{{{M}, taints: [a=b, a=b]}}]", "each is there once"),
    "taints that are text": (f"machines: [{{{M}, taints: a=b}}]", "taints is 'a=b'"),
    "devices and GPUs": (
        f"machines: [{{{M}, gpus: 2, devices: [{{type: T4}}]}}]",
        "it has both devices and gpus",
    ),
    "no devices": (f"machines: [{{{M}, devices: []}}]", "at least one device"),
    "a device of no type": (
        f"machines: [{{{M}, devices: [{{count: 2}}]}}]",
        "machine entry 1, device entry 1: type is missing",
    ),
    "an unknown device without memory": (
        f"machines: [{{{M}, devices: [{{type: K40}}]}}]",
        "memory_gib is missing",
    ),
    "more than a whole device": (
        f"machines: [{{{M}, devices: [{{type: T4, compute: 1200m}}]}}]",
        "compute is '1200m', but it must be a share of one GPU",
    ),
    "too many devices": (
        f"machines: [{{{M}, devices: [{{type: T4, count: 63}}]}}]",
        "machine entry 1: gpus of machine",
    ),
    "a rack in two zones": (
        f"topology: [zone, rack]\nmachines: [{{name: a, {M}, labels: {{zone: x, rack: r}}}}, "
        f"{{name: b, {M}, labels: {{zone: y, rack: r}}}}]",
        "rack 'r' is in zone 'x' by machine a, but in 'y' by machine b",
    ),
    "a level that nobody has": (
        f"topology: [zone]\n{TWO}",
        "topology has the level 'zone', but no machine has such a label",
    ),
    "a level twice": (f"topology: [zone, zone]\n{TWO}", "each level is named once"),
    "levels that are text": (f"topology: zone\n{TWO}", "topology is 'zone'"),
    "levels that are numbers": (f"topology: [1]\n{TWO}", "topology is [1]"),
    "events that are no list": (f"{TWO}\nevents: {{at: 1}}", "events is {'at': 1}"),
    "an event that is text": (f"{TWO}\nevents: [drain]", "event 1 is 'drain'"),
    "an event without a time": (f"{TWO}\nevents: [{{drain: a}}]", "event 1: at is missing"),
    "a time that is negative": (
        f"{TWO}\nevents: [{{at: -5, drain: a}}]",
        "event 1: at is -5, but it must be 0 or later",
    ),
    "a time in words": (f"{TWO}\nevents: [{{at: soon, drain: a}}]", "at is 'soon'"),
    "a time that is negative text": (f"{TWO}\nevents: [{{at: -2h, drain: a}}]", "at is '-2h'"),
    "an event without a verb": (f"{TWO}\nevents: [{{at: 1}}]", "needs exactly one of join"),
    "two verbs": (f"{TWO}\nevents: [{{at: 1, drain: a, lose: b}}]", "has 2"),
    "an unknown verb": (f"{TWO}\nevents: [{{at: 1, explode: a}}]", "the key 'explode'"),
    "an unknown machine": (
        f"{TWO}\nevents: [{{at: 1, drain: c}}]",
        "event 1: machine 'c' is not there at that time",
    ),
    "a machine that has left": (
        f"{TWO}\nevents: [{{at: 2, drain: b}}, {{at: 1, leave: b}}]",
        "event 1: machine 'b' is not there at that time",
    ),
    "a machine that joins twice": (
        f"{TWO}\nevents: [{{at: 1, join: {{name: b, {M}}}}}]",
        "event 1: machine 'b' joins, but it is there already",
    ),
    "a machine that is lost twice": (
        f"{TWO}\nevents: [{{at: 1, lose: b}}, {{at: 2, lose: b}}]",
        "event 2: machine 'b' is lost, but it was lost before",
    ),
    "a return of one that was not lost": (f"{TWO}\nevents: [{{at: 1, return: b}}]", "not lost"),
    "a second drain": (
        f"{TWO}\nevents: [{{at: 1, drain: b}}, {{at: 2, drain: b}}]",
        "was drained before",
    ),
    "an undrain of one that was not": (
        f"{TWO}\nevents: [{{at: 1, undrain: b}}]",
        "it was not drained",
    ),
    "a GPU that is not there": (
        f"{TWO}\nevents: [{{at: 1, lose_device: {{machine: a, gpu: 2}}}}]",
        "machine 'a' has no GPU 2; it has 2",
    ),
    "a GPU that is lost twice": (
        f"{TWO}\nevents: [{{at: 1, lose_device: {{machine: a, gpu: 0}}}}, "
        "{at: 2, lose_device: {machine: a, gpu: 0}}]",
        "GPU 0 of a is lost, but it was lost before",
    ),
    "a GPU that returns unlost": (
        f"{TWO}\nevents: [{{at: 1, return_device: {{machine: a, gpu: 0}}}}]",
        "it was not lost",
    ),
    "a GPU of a pool": (
        f"machines: [{{name: p, pooled: true, gpus: 2, gpu_type: T4, {M}}}]\n"
        "events: [{at: 1, lose_device: {machine: p, gpu: 0}}]",
        "is pooled: its GPUs are not told apart",
    ),
    "more CPUs than there are": (
        f"{TWO}\nevents: [{{at: 1, occupy: {{machine: a, cpus: 5}}}}]",
        "event 1, occupy: cpus is 5, but it must be at most the 4 of a",
    ),
    "more memory than there is": (
        f"{TWO}\nevents: [{{at: 1, occupy: {{machine: a, memory_gib: 9}}}}]",
        "at most the 8 of a",
    ),
    "a share of a GPU that is not there": (
        f"{TWO}\nevents: [{{at: 1, occupy: {{machine: a, gpus: {{5: 1}}}}}}]",
        "machine 'a' has no GPU 5",
    ),
    "a share above one": (
        f"{TWO}\nevents: [{{at: 1, occupy: {{machine: a, gpus: {{0: 2}}}}}}]",
        "GPU 0: compute is 2",
    ),
    "more of a GPU's memory than it has": (
        f"{TWO}\nevents: [{{at: 1, occupy: {{machine: a, gpus: {{0: {{memory_gib: 17}}}}}}}}]",
        "GPU 0: memory_gib is 17",
    ),
    "GPUs of no number": (
        f"{TWO}\nevents: [{{at: 1, occupy: {{machine: a, gpus: {{first: 1}}}}}}]",
        "numbers of GPUs with shares",
    ),
    "a change of several": (
        f"{TWO}\nevents: [{{at: 1, change: {{name: a, count: 2}}}}]",
        "machine by machine",
    ),
    "a join that breaks a rule": (
        f"{TWO}\nevents: [{{at: 1, join: {{name: c, cpus: four, memory_gib: 1}}}}]",
        "event 1, join: cpus is 'four'",
    ),
    "a join that contradicts the topology": (
        f"topology: [zone, rack]\nmachines: [{{name: a, {M}, labels: {{zone: x, rack: r}}}}]\n"
        f"events: [{{at: 1, join: {{name: b, {M}, labels: {{zone: y, rack: r}}}}}}]",
        "event 1: rack 'r' is in zone 'x' by machine a",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_one_sentence_with_its_place(case: str) -> None:
    text, what = FAULTS[case]

    with pytest.raises(InvalidFile) as caught:
        read(text)

    assert what in str(caught.value)
    assert str(caught.value).startswith("lab.yaml: ")
    assert str(caught.value).endswith((".", ";"))


# -- there and back -----------------------------------------------------------------------


@given(scenario=scenarios())
def test_what_is_written_is_read_again(scenario: ClusterScenario) -> None:
    document = cluster_document(scenario.cluster, scenario.events)

    assert scenario_of("x", "x", document) == scenario
    # A log keeps documents as JSON, where keys are text.
    assert scenario_of("x", "x", json.loads(json.dumps(document))) == scenario


@pytest.mark.parametrize("name", ["pai2020", "pool:6500"])
def test_a_built_in_cluster_can_be_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / "written.yaml"
    path.write_text(yaml.safe_dump(cluster_document(load_cluster(name))))

    assert load_cluster(str(path)) == load_cluster(name)
    assert load_scenario(str(path)).events == ()


@given(milli=st.lists(st.integers(0, 1000), min_size=1, max_size=4))
def test_devices_are_written_and_read_again(milli: list[int]) -> None:
    devices = [Device("T4", 16_384, one) for one in milli]
    cluster = Cluster("x", (with_devices(MachineId("a"), devices),))

    assert scenario_of("x", "x", cluster_document(cluster)).cluster == cluster
