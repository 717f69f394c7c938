"""A scheduler with the rights that are installed, and no others: it works, and may no more."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interlane.engines.kubernetes.install import roles
from interlane.engines.kubernetes.install.objects import Installation, objects_of
from interlane.live.files.job import read_spec
from interlane.model.lifecycle import JobState
from interlane.testing.kube_api import KubeApi, KubeRefused
from interlane.testing.kube_audit import findings
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_scheduled import PLAYED, ScheduledCluster
from interlane.testing.kube_site import apply
from interlane.testing.kube_world import PODS, labelled, pod_document
from interlane.testing.waiting import until

HOME = "interlane"
RIGHTS = (
    *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"),
    *("Role", "RoleBinding"),
)
REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
NAMESPACES = (HOME, "default", "kube-system")
FORBIDDEN = 403


@pytest.fixture(scope="module")
def account(control_plane: KubeCluster) -> Iterator[str]:
    """Install roles; return the user whose token is the scheduler's."""
    api = control_plane.api()
    made = [one for one in objects_of(Installation(HOME)) if one["kind"] in RIGHTS]
    for one in made:
        apply(api, one)
    path = f"/api/v1/namespaces/{HOME}"

    def token() -> str | None:
        found = api.get(f"{path}/serviceaccounts/{roles.SCHEDULER}")
        if not found.get("secrets"):
            return None
        secret = api.get(f"{path}/secrets/{found['secrets'][0]['name']}")
        return base64.b64decode(secret["data"]["token"]).decode()

    until(token, "the account's token")
    control_plane.tokens[roles.SCHEDULER] = token() or ""
    yield roles.SCHEDULER
    api.delete(path)


def rules_of(kind: str, where: str | None) -> list[dict[str, Any]]:
    """Return what the scheduler is granted by roles of a kind in a namespace."""
    return [
        rule
        for one in objects_of(Installation(HOME))
        if one["kind"] == kind
        and one["metadata"].get("namespace") == where
        and one["metadata"]["name"].startswith(roles.SCHEDULER)
        for rule in one["rules"]
    ]


def granted(where: str, group: str, resource: str, verb: str) -> bool:
    """Tell whether a rule without names of objects grants something in a namespace."""
    rules = [*rules_of("ClusterRole", None), *rules_of("Role", where)]
    return any(
        group in one["apiGroups"]
        and resource in one["resources"]
        and verb in one["verbs"]
        and "resourceNames" not in one
        for one in rules
    )


def resources_of(api: KubeApi) -> list[tuple[str, str]]:
    """Return all that the server serves: groups, and what is in them."""
    groups = [("", "/api/v1")]
    for group in api.get("/apis")["groups"]:
        groups.append((group["name"], f"/apis/{group['preferredVersion']['groupVersion']}"))
    return [(name, one["name"]) for name, path in groups for one in api.get(path)["resources"]]


def may(api: KubeApi, where: str, group: str, resource: str, verb: str) -> bool:
    name, _, below = resource.partition("/")
    asked = {"namespace": where, "group": group, "resource": name, "verb": verb}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{HOME}:{roles.SCHEDULER}",
            "groups": ["system:authenticated", "system:serviceaccounts"],
            "resourceAttributes": {**asked, **({"subresource": below} if below else {})},
        },
    }
    return bool(api.post(REVIEW, body)["status"]["allowed"])


def test_everything_outside_its_role_is_refused(
    control_plane: KubeCluster, account: str
) -> None:
    """Every resource of the server with every verb, where it works and where it does not."""
    api = control_plane.api()
    listed = resources_of(api)
    assert ("", "pods/binding") in listed
    allowed = {
        (where, group, resource, verb)
        for where in NAMESPACES
        for group, resource in listed
        for verb in VERBS
        if may(api, where, group, resource, verb)
    }
    expected = {
        (where, group, resource, verb)
        for where in NAMESPACES
        for group, resource in listed
        for verb in VERBS
        if granted(where, group, resource, verb)
    }
    # Whoever is somebody may ask what they may do themselves.
    own = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
    assert {one for one in allowed if one[2] not in own} == expected
    assert len(expected) > 20


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", PODS, pod_document("mine")),
        ("DELETE", "/api/v1/nodes/a", None),
        ("PATCH", "/api/v1/nodes/a", {"spec": {"unschedulable": True}}),
        ("GET", "/api/v1/namespaces/kube-system/secrets", None),
        ("DELETE", f"/api/v1/namespaces/{HOME}/secrets/interlane-seal", None),
    ],
)
def test_its_token_is_refused(
    control_plane: KubeCluster,
    account: str,
    method: str,
    path: str,
    body: Any,  # noqa: ANN401
) -> None:
    api = control_plane.api(account)
    with pytest.raises(KubeRefused) as refused:
        api.call(method, path, body)
    assert refused.value.status == FORBIDDEN


def test_it_does_all_its_work_without_a_right_that_it_lacks(
    cluster: KubeCluster, account: str, tmp_path: Path
) -> None:
    machines = [labelled(f"node-{number}", 2, 8_000) for number in range(2)]
    pods = replace(PLAYED, home=HOME)
    with ScheduledCluster(cluster, tmp_path, machines, account, pods) as scheduled:
        gang = {"interlane.dev/gang": "ring", "interlane.dev/gang-size": "2"}
        half = {"interlane.dev/gpu-fraction": "0.5"}
        for name, said in (("one", half), ("two", half), ("left", gang), ("right", gang)):
            pod = pod_document(name, cpu="500m", schedulerName="interlane")
            pod["metadata"]["annotations"] = said
            scheduled.api.post(PODS, pod)
        job = read_spec({"name": "job", "run": "true", "gang": {"nodes": 2}})
        record = scheduled.driver.submit(job, "ann").result(60)
        scheduled.settled()
        until(lambda: scheduled.runs("job"), "the job of a user")
        large = pod_document("large", cpu="500", schedulerName="interlane")
        scheduled.api.post(PODS, large)
        until(lambda: scheduled.told("large"), "why a pod waits")
        scheduled.driver.cancel(record.id, "ann").result(60)
        until(lambda: not scheduled.knows("job"), "the end of the job")
        ended = scheduled.store.job(record.id)
        assert ended is not None
        assert ended.state is JobState.CANCELLED
        assert findings(scheduled.api) == []
        assert scheduled.proxy.answers[FORBIDDEN] == 0, scheduled.proxy.answers
        assert scheduled.proxy.answers[201] > 0
