"""What is printed for installation, without a cluster; ``tests/kube`` installs it in one."""

from typing import Any

import yaml

from interlane.engines.kubernetes.install.chart import chart_of
from interlane.engines.kubernetes.install.objects import Installation, objects_of
from interlane.engines.kubernetes.install.status import status_of
from interlane.engines.kubernetes.reports import NodeReport, config_map_of, report_in
from interlane.lanes.actions import MemoryDemand
from interlane.lanes.report import (
    DaemonReport,
    DeviceReport,
    ProcessReport,
    ProcessState,
    RunReport,
)
from interlane.model import Device


def of_kind(kind: str, wanted: Installation | None = None) -> list[dict[str, Any]]:
    return [one for one in objects_of(wanted or Installation()) if one["kind"] == kind]


def test_the_scheduler_is_not_root_and_can_write_to_nothing_but_its_own_folders() -> None:
    (made,) = of_kind("Deployment")
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] > 0
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {one["name"] for one in spec["volumes"] if "emptyDir" in one} == {"state", "tmp"}
    assert {"readinessProbe", "livenessProbe"} <= container.keys()


def test_an_agent_has_two_powers_of_root_and_no_privileges() -> None:
    (made,) = of_kind("DaemonSet")
    (container,) = made["spec"]["template"]["spec"]["containers"]

    held = container["securityContext"]
    assert held["readOnlyRootFilesystem"]
    assert not held["allowPrivilegeEscalation"]
    assert held["capabilities"] == {"drop": ["ALL"], "add": ["KILL", "SYS_NICE"]}
    assert "privileged" not in held


def test_no_rule_has_a_star_or_lets_anybody_write_nodes_or_roles() -> None:
    rules = [
        rule
        for kind in ("Role", "ClusterRole")
        for role in of_kind(kind)
        for rule in role["rules"]
    ]
    assert len(rules) > 10
    for rule in rules:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"]
        if "nodes" in rule["resources"]:
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
        if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
            assert rule["resourceNames"] == ["interlane-seal"]


def test_each_account_that_is_bound_is_made() -> None:
    accounts = {one["metadata"]["name"] for one in of_kind("ServiceAccount")}
    bindings = [*of_kind("RoleBinding"), *of_kind("ClusterRoleBinding")]
    roles = {
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for kind in ("Role", "ClusterRole")
        for one in of_kind(kind)
    }
    for one in bindings:
        (subject,) = one["subjects"]
        assert subject["name"] in accounts
        where = one["metadata"].get("namespace")
        assert (one["roleRef"]["kind"], where, one["roleRef"]["name"]) in roles


def test_what_is_wanted_is_what_is_printed() -> None:
    wanted = Installation(
        "home",
        "image:1",
        "work",
        3,
        "cpu:2",
        {"a": "b"},
        "policy/v1beta1",
        "",
        ("--order", "sjf"),
    )
    (scheduler,), (agents,) = of_kind("Deployment", wanted), of_kind("DaemonSet", wanted)
    (budget,) = of_kind("PodDisruptionBudget", wanted)

    assert scheduler["spec"]["replicas"] == 3
    assert scheduler["spec"]["template"]["spec"]["containers"][0]["image"] == "image:1"
    assert scheduler["spec"]["template"]["spec"]["containers"][0]["command"][-2:] == [
        "--order",
        "sjf",
    ]
    assert agents["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
    assert budget["apiVersion"] == "policy/v1beta1"
    homes = {one["metadata"].get("namespace") for one in objects_of(wanted)}
    assert homes == {None, "home", "work"}


def test_a_scheduler_never_takes_tokens_in_the_open() -> None:
    for secret, said in (("", ["--behind-proxy"]), ("web", ["--tls-cert", "--tls-key"])):
        (made,) = of_kind("Deployment", Installation(tls_secret=secret))
        spec = made["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert set(said) <= set(container["command"])
        schemes = {
            container[name]["httpGet"]["scheme"]
            for name in ("readinessProbe", "livenessProbe", "startupProbe")
        }
        assert schemes == {"HTTPS" if secret else "HTTP"}
        assert any("secret" in one for one in spec["volumes"]) == bool(secret)


def test_a_chart_has_a_value_for_all_that_differs_between_clusters() -> None:
    made = chart_of(Installation(image="image:1", replicas=3))
    values, text = yaml.safe_load(made["values.yaml"]), made["templates/interlane.yaml"]

    assert values["image"] == "image:1"
    assert values["replicas"] == 3
    for name in values:
        assert f".Values.{name}" in text, name
    assert "zz" not in text
    assert "987654" not in text
    assert text.count("\nkind: ") == len(objects_of(Installation())) - 1


def report(slow: bool = True) -> NodeReport:  # noqa: FBT001 - one of two reports
    run = RunReport(10, 1.0, 5.0 if slow else 0.0, 10.0)
    process = ProcessReport(
        *("p.1", "job-a", 1, ProcessState.RUNNING, None, 0, 0, 500),
        is_declared=False,
        booked=MemoryDemand(1, 1),
        measured=None,
        run=run,
        attained_s=1.0,
    )
    device = DeviceReport(
        *(0, "cpu", (0,), 1 << 30, 0, False, 0.1, 10, 1.0, 3, 0.5),
        lanes=(),
        processes=(process,),
    )
    shared = DaemonReport("s", 1, "0", "fair", "measured", "complete", (device,))
    return NodeReport(
        "n1", 1.5, (Device("A100", 40_960), Device("A100", 40_960, 0)), (1,), shared
    )


def test_a_report_comes_back_as_it_was_sent() -> None:
    assert report_in(config_map_of(report(), "home")) == report()
    measured = report().measured(7.0)
    assert measured is not None
    assert [(one.machine, one.index) for one in measured.gpus] == [("n1", 1)]


def test_status_tells_who_holds_what_and_why_others_wait() -> None:
    node = {
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "A100"}},
        "status": {"allocatable": {"interlane.dev/gpu-share": "200", "cpu": "4"}},
    }

    def pod(name: str, node_name: str | None, phase: str = "Running", **more: str) -> Any:  # noqa: ANN401
        return {
            "metadata": {"namespace": "ns", "name": name, "annotations": more},
            "spec": {"schedulerName": "interlane", "nodeName": node_name},
            "status": {
                "phase": phase,
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "No room."}
                ],
            },
        }

    held = {"interlane.dev/gpu-index": "1", "interlane.dev/gpu-milli": "300"}
    found = status_of(
        [node],
        [
            pod("a", "n1", **held),
            pod("b", "n1", **held),
            pod("over", "n1", "Succeeded", **held),
            pod("waits", None, "Pending"),
        ],
        [report()],
    )

    assert [(one.number, one.held_milli, one.pods) for one in found.gpus] == [
        (0, 0, ()),
        (1, 600, ("ns/a", "ns/b")),
    ]
    assert [one.slowdown for one in found.gpus] == [None, 2.0]
    assert found.waiting == (("ns/waits", "No room."),)
