"""Tokens of what is installed may do what their roles say, and are refused all else."""

import asyncio
import base64
from pathlib import Path

import pytest
import yaml

from interlane.engines.kubernetes.client import KubeClient
from interlane.engines.kubernetes.config import server_of
from interlane.engines.kubernetes.install import roles
from interlane.engines.kubernetes.install.doctor import ClusterFinding, findings
from interlane.engines.kubernetes.sealing import SECRET
from interlane.testing.kube_api import MERGE, KubeApi, KubeRefused
from interlane.testing.kube_site import KubeSite

HOME = "interlane"
FORBIDDEN = 403

Call = tuple[str, str, dict[str, object] | None]

NOBODYS: list[Call] = [
    ("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "mine"}}),
    ("PATCH", "/api/v1/nodes/real-0", {"spec": {"unschedulable": True}}),
    ("DELETE", "/api/v1/nodes/real-0", None),
    ("GET", "/api/v1/secrets", None),
    ("GET", "/api/v1/namespaces/kube-system/secrets", None),
    ("GET", f"/api/v1/namespaces/{HOME}/secrets", None),
    ("DELETE", f"/api/v1/namespaces/{HOME}/secrets/{SECRET}", None),
    ("GET", "/api/v1/namespaces/kube-system/configmaps", None),
    ("POST", "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "mine"}}),
    ("POST", f"/apis/batch/v1/namespaces/{HOME}/jobs", {"metadata": {"name": "mine"}}),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "m"}}),
    ("DELETE", "/api/v1/namespaces/default", None),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {}),
]
"""What nothing of ours may do."""

SCHEDULERS: list[Call] = [
    ("GET", "/api/v1/nodes", None),
    ("GET", "/api/v1/pods", None),
    ("GET", f"/api/v1/namespaces/{HOME}/secrets/{SECRET}", None),
    ("GET", f"/api/v1/namespaces/{HOME}/configmaps", None),
    ("GET", "/apis/batch/v1/jobs", None),
]
NODES: list[Call] = [("GET", "/api/v1/pods", None)]
NOT_NODES: list[Call] = [
    ("GET", "/api/v1/nodes", None),
    ("GET", f"/api/v1/namespaces/{HOME}/secrets/{SECRET}", None),
    ("POST", "/api/v1/namespaces/default/pods/any/binding", {}),
    ("POST", "/api/v1/namespaces/default/pods/any/eviction", {}),
    ("DELETE", "/api/v1/namespaces/default/pods/any", None),
    ("DELETE", f"/api/v1/namespaces/{HOME}/configmaps/interlane-node-real-0", None),
]


def as_account(site: KubeSite, name: str) -> KubeApi:
    """Return a client that has the token of a service account, as pods have it."""
    path = f"/api/v1/namespaces/{HOME}"
    account = site.api.get(f"{path}/serviceaccounts/{name}")
    secret = site.api.get(f"{path}/secrets/{account['secrets'][0]['name']}")
    token = base64.b64decode(secret["data"]["token"]).decode()
    return site.cluster.api_of(token)


def answer(api: KubeApi, call: Call) -> int:
    method, path, body = call
    try:
        api.call(method, path, body, MERGE if method == "PATCH" else "application/json")
    except KubeRefused as refused:
        return refused.status
    return 200


@pytest.mark.parametrize("call", NOBODYS, ids=lambda call: f"{call[0]} {call[1]}")
def test_no_token_of_ours_may_do_this(site: KubeSite, call: Call) -> None:
    assert answer(as_account(site, roles.SCHEDULER), call) == FORBIDDEN
    assert answer(as_account(site, roles.NODE), call) == FORBIDDEN


def test_the_scheduler_may_see_what_it_schedules(site: KubeSite) -> None:
    api = as_account(site, roles.SCHEDULER)
    assert [answer(api, call) for call in SCHEDULERS] == [200] * len(SCHEDULERS)


def test_an_agent_may_see_pods_and_nothing_else(site: KubeSite) -> None:
    api = as_account(site, roles.NODE)
    assert [answer(api, call) for call in NODES] == [200]
    assert [answer(api, call) for call in NOT_NODES] == [FORBIDDEN] * len(NOT_NODES)


def kubeconfig_of(site: KubeSite, token: str, folder: Path) -> Path:
    """Write the file by which a program with a token finds the server."""
    said = yaml.safe_load(site.cluster.kubeconfig().read_text())
    said["users"][0]["user"] = {"token": token}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(said))
    return file


def looked_at(site: KubeSite, token: str, folder: Path) -> dict[str, ClusterFinding]:
    file = kubeconfig_of(site, token, folder)

    async def asked() -> list[ClusterFinding]:
        client = KubeClient(server_of(file))
        await client.open()
        try:
            return await findings(client, HOME, "default")
        finally:
            await client.close()

    return {one.name: one for one in asyncio.run(asked())}


def test_the_doctor_knows_a_cluster_and_whether_an_account_may_schedule_there(
    site: KubeSite, tmp_path: Path
) -> None:
    found = looked_at(site, as_account(site, roles.SCHEDULER).token, tmp_path)
    assert found["rights of this account"].here == "all that a scheduler needs"
    assert found["nodes with shared GPUs"].here == "3 of 3"
    assert found["agents"].holds, found["agents"]
    assert found["leases"].holds
    assert not found["resource claims"].holds

    found = looked_at(site, site.cluster.tokens["admin"], tmp_path)
    assert found["rights of this account"].holds

    lesser = site.api.post(
        f"/api/v1/namespaces/{HOME}/serviceaccounts/{roles.NODE}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )["status"]["token"]
    found = looked_at(site, lesser, tmp_path)
    assert not found["rights of this account"].holds
    assert "lacks get nodes, list nodes, watch nodes" in found["rights of this account"].here
    assert not found["nodes"].holds
