"""What cannot be scheduled as it is says so on itself, and keeps nobody else waiting."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlane.testing.kube_api import KubeApi, KubeRefused
from interlane.testing.kube_audit import bound_pods, findings
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_scheduled import ScheduledCluster
from interlane.testing.kube_world import NODES, PODS, labelled, node_document, pod_document
from interlane.testing.waiting import until

EVENTS = "/api/v1/namespaces/default/events"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFLICT = 409
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"


@pytest.fixture
def scheduled(cluster: KubeCluster, tmp_path: Path) -> Iterator[ScheduledCluster]:
    machines = [labelled(f"node-{number}", 4, 16_000) for number in range(2)]
    with ScheduledCluster(cluster, tmp_path, machines) as made:
        yield made


def pod(name: str, *asks: dict[str, str], **said: str) -> dict[str, Any]:
    """Return a pod whose containers ask for so much each."""
    made = pod_document(name, cpu="100m", schedulerName="interlane")
    made["metadata"]["annotations"] = {key.replace("__", "/"): one for key, one in said.items()}
    if asks:
        made["spec"]["containers"] = [
            {"name": f"c{at}", "image": "played", "resources": {"limits": asked}}
            for at, asked in enumerate(asks)
        ]
    return made


def goes_on(scheduled: ScheduledCluster, *, beside_others: bool = False) -> None:
    """Check that somebody's pod is scheduled as ever, and that nothing of ours is wrong."""
    name = f"good-{len(scheduled.api.items(PODS))}"
    scheduled.api.post(PODS, pod(name))
    until(lambda: scheduled.runs(name), f"{name} runs")
    assert scheduled.driver.is_ready
    # Another scheduler gives away more than a node has, and counts no parts of GPUs.
    wrong = [
        one for one in findings(scheduled.api) if not beside_others or "Pods on" not in one
    ]
    assert wrong == []


def events_of(scheduled: ScheduledCluster, name: str) -> str:
    """Return all that was told about an object."""
    found = scheduled.api.items(EVENTS, fieldSelector=f"involvedObject.name={name}")
    return "\n".join(f"{one['reason']}: {one['message']}" for one in found)


def told(scheduled: ScheduledCluster, name: str, *parts: str) -> None:
    """Wait until a pod's condition and an event say something."""

    def is_told() -> bool:
        scheduled.engine.explain_gangs()
        said = scheduled.told(name), events_of(scheduled, name)
        return all(part in one for one in said for part in parts)

    try:
        until(is_told, f"a condition and an event of {name}")
    except AssertionError:
        print(scheduled.told(name), events_of(scheduled, name), sep="\n")
        raise


@pytest.mark.parametrize(
    ("asks", "said", "parts"),
    [
        ((), {"interlane.dev__gpu-fraction": "half"}, ("above 0 and at most 1",)),
        ((), {"interlane.dev__gpu-fraction": "1.5"}, ("above 0 and at most 1",)),
        ((), {"interlane.dev__gpu-fraction": "nan"}, ("above 0 and at most 1",)),
        (
            (),
            {"interlane.dev__gpu-fraction": "0.5", "interlane.dev__gpu-count": "-1"},
            ("whole number above 0",),
        ),
        (
            (),
            {"interlane.dev__gpu-fraction": "0.5", "interlane.dev__gpu-memory": "much"},
            ("interlane.dev/gpu-memory", "much"),
        ),
        ((), {"interlane.dev__priority": "1000"}, ("0 to 100",)),
        ((), {"interlane.dev__gang": "g", "interlane.dev__gang-size": "0"}, ("how many pods",)),
        ((), {"interlane.dev__expected": "soon"}, ("soon",)),
        (
            ({"nvidia.com/gpu": "1"}, {"interlane.dev/gpu-share": "50"}),
            {},
            ("two ways that do not agree",),
        ),
        (
            ({"nvidia.com/mig-1g.5gb": "1"}, {"nvidia.com/mig-2g.10gb": "1"}),
            {},
            ("2 profiles",),
        ),
        (({"nvidia.com/mig-9g.99gb": "1"},), {}, ("9g.99gb",)),
        (({"nvidia.com/gpu": "16"},), {}, ("16",)),
    ],
    ids=[
        *("no number", "too much", "not a number", "count", "memory", "priority"),
        *("gang size", "time", "containers that differ", "two profiles"),
        *("unknown profile", "no such node"),
    ],
)
def test_a_bad_pod_is_told_what_to_change(
    scheduled: ScheduledCluster,
    asks: tuple[dict[str, str], ...],
    said: dict[str, str],
    parts: tuple[str, ...],
) -> None:
    scheduled.api.post(PODS, pod("bad", *asks, **said))
    told(scheduled, "bad", *parts)
    goes_on(scheduled)
    assert not scheduled.api.get(f"{PODS}/bad")["spec"].get("nodeName")


def test_a_pod_that_fits_no_node_is_scheduled_once_one_comes(
    scheduled: ScheduledCluster,
) -> None:
    scheduled.api.post(PODS, pod("large", {"nvidia.com/gpu": "8"}))
    told(scheduled, "large", "8")
    large = labelled("large-node", 8, 16_000)
    scheduled.api.post(NODES, node_document(large))
    scheduled.kubelets.add_node(large.id)
    until(lambda: scheduled.runs("large"), "the pod runs")
    assert scheduled.api.get(f"{PODS}/large")["spec"]["nodeName"] == "large-node"
    assert findings(scheduled.api) == []


def test_nodes_that_say_what_cannot_be_get_nothing_and_are_told(
    scheduled: ScheduledCluster,
) -> None:
    lies = {"cpu": "1e30", "memory": "64Gi", "pods": "250", "nvidia.com/gpu": "4"}
    made = node_document(labelled("liar", 4, 16_000))
    made["status"] |= {"capacity": lies, "allocatable": lies}
    scheduled.api.post(NODES, made)
    until(lambda: "InvalidNode" in events_of(scheduled, "liar"), "an event of the node")
    for at in range(6):
        scheduled.api.post(PODS, pod(f"p{at}", {"nvidia.com/gpu": "1"}))
    scheduled.settled()
    assert all(one.node != "liar" for one in bound_pods(scheduled.api))
    goes_on(scheduled)


def test_a_node_that_offers_less_than_it_gave_is_not_given_more(
    scheduled: ScheduledCluster,
) -> None:
    """Its GPUs vanish under pods that have them; whoever comes goes elsewhere."""
    for at in range(4):
        scheduled.api.post(PODS, pod(f"p{at}", {"nvidia.com/gpu": "1"}))
    scheduled.settled()
    held = bound_pods(scheduled.api)
    (node,) = {one.node for one in held}  # the placer packs
    fewer = node_document(labelled(node, 1, 16_000))["status"]
    scheduled.api.patch(f"{NODES}/{node}/status", {"status": fewer})

    def is_known() -> bool:
        known = scheduled.driver.snapshot().machines.known
        return any(one.id == node and one.gpus == 1 for one in known.values())

    until(is_known, "the smaller node is known")
    for at in range(4, 7):
        scheduled.api.post(PODS, pod(f"p{at}", {"nvidia.com/gpu": "1"}))
    until(lambda: all(scheduled.runs(f"p{at}") for at in range(4, 7)), "the others run")
    assert {one.node for one in bound_pods(scheduled.api) if one.name >= "p4"} != {node}
    assert scheduled.driver.is_ready


def test_another_scheduler_that_binds_our_pods_is_seen_and_counted(
    scheduled: ScheduledCluster,
) -> None:
    """It takes every second pod, with all of a node's CPU that it says it needs."""
    for at in range(8):
        made = pod(f"p{at}", {"cpu": "3", "nvidia.com/gpu": "1"})
        name = scheduled.api.post(PODS, made)["metadata"]["name"]
        if at % 2 == 0:
            _bind(scheduled.api, name, "node-1")

    def is_settled() -> bool:
        ours = [one for one in bound_pods(scheduled.api) if one.job is not None]
        waiting = [
            one["metadata"]["name"]
            for one in scheduled.api.items(PODS)
            if not one["spec"].get("nodeName")
        ]
        ledger = sum(scheduled.in_ledger().values())
        return not waiting and ledger == len(ours)

    until(is_settled, "all pods have a node, and the ledger knows which of them are ours")
    assert len(bound_pods(scheduled.api)) == 8
    goes_on(scheduled, beside_others=True)


def _bind(api: KubeApi, name: str, node: str) -> bool:
    """Bind a pod as any scheduler does; False if somebody was faster."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    try:
        api.post(f"{PODS}/{name}/binding", binding)
    except KubeRefused as refused:
        if refused.status != CONFLICT:
            raise
        return False
    return True


def test_a_pod_that_another_scheduler_took_is_told_so(scheduled: ScheduledCluster) -> None:
    scheduled.api.post(PODS, pod("large", {"nvidia.com/gpu": "16"}))  # ours lets it wait
    told(scheduled, "large", "16")
    assert _bind(scheduled.api, "large", "node-0")
    until(lambda: "BoundElsewhere" in events_of(scheduled, "large"), "an event")
    assert "schedulerName" in events_of(scheduled, "large")
    goes_on(scheduled, beside_others=True)


def test_gangs_that_are_never_complete_wait_and_are_told_why(
    scheduled: ScheduledCluster,
) -> None:
    ring = {"interlane.dev__gang": "ring", "interlane.dev__gang-size": "3"}
    odd = {"interlane.dev__gang": "odd", "interlane.dev__gang-size": "2"}
    wide = {"interlane.dev__gang": "wide", "interlane.dev__gang-size": "3"}
    for at in range(2):
        scheduled.api.post(PODS, pod(f"ring-{at}", **ring))
    told(scheduled, "ring-1", "2 of 3 pods")
    scheduled.api.post(PODS, pod("odd-0", **odd))
    scheduled.api.post(PODS, pod("odd-1", **{**odd, "interlane.dev__gang-size": "3"}))
    told(scheduled, "odd-1", "must say the same")
    for at in range(3):
        scheduled.api.post(PODS, pod(f"wide-{at}", {"nvidia.com/gpu": "4"}, **wide))
    told(scheduled, "wide-2", "3 x (4 GPU)", "room for 2")
    goes_on(scheduled)
    assert [one.name for one in bound_pods(scheduled.api) if "good" not in one.name] == []


@pytest.fixture
def pod_groups(cluster: KubeCluster) -> Iterator[KubeApi]:
    """Let the cluster have PodGroups, as the co-scheduling plugin brings them."""
    api = cluster.api()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True}
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"}
    name = "podgroups.scheduling.x-k8s.io"
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements"}
    api.post(
        CRDS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "annotations": approved},
            "spec": {
                "group": "scheduling.x-k8s.io",
                "scope": "Namespaced",
                "names": names,
                "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
            },
        },
    )

    def is_served() -> bool:
        try:
            api.items(GROUPS)
        except KubeRefused:
            return False
        return True

    until(is_served, "pod groups")
    yield api
    api.delete(f"{CRDS}/{name}")
    until(lambda: not is_served(), "the end of pod groups")


def test_a_pod_group_starts_together_and_one_without_its_object_is_told(
    pod_groups: KubeApi, scheduled: ScheduledCluster
) -> None:
    for name in ("ring-0", "ring-1"):
        made = pod(name)
        made["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "ring"}
        pod_groups.post(PODS, made)
    told(scheduled, "ring-0", "There is no PodGroup ring")
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "ring"},
        "spec": {"minMember": 3},
    }
    pod_groups.post(GROUPS, group)
    told(scheduled, "ring-1", "2 of 3 pods")
    last = pod("ring-2")
    last["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "ring"}
    pod_groups.post(PODS, last)
    scheduled.settled()
    assert len({one.job for one in bound_pods(pod_groups)}) == 1
    goes_on(scheduled)
