"""``interlane kube`` where no cluster is needed; ``tests/kube`` has the rest."""

import json
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Call

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
"""


def test_manifests_are_printed_for_kubectl(call: Call) -> None:
    answer = call("kube", "manifests", "--image", "image:1", "--kubernetes", "1.20")
    made = list(yaml.safe_load_all(answer.out))

    assert answer.code == 0
    assert made[0]["kind"] == "Namespace"
    assert {"Deployment", "DaemonSet", "PodDisruptionBudget"} <= {one["kind"] for one in made}
    (budget,) = (one for one in made if one["kind"] == "PodDisruptionBudget")
    assert budget["apiVersion"] == "policy/v1beta1"
    assert "image: image:1" in answer.out


def test_manifests_as_json_are_one_list(call: Call) -> None:
    answer = call("kube", "manifests", "--node-selector", "", "-o", "json")
    made = json.loads(answer.out)

    assert made["kind"] == "List"
    (agents,) = (one for one in made["items"] if one["kind"] == "DaemonSet")
    assert agents["spec"]["template"]["spec"]["nodeSelector"] == {}


def test_a_chart_is_written_into_a_new_folder_only(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "chart"
    answer = call("kube", "manifests", "--helm", str(folder), "--replicas", "3")

    assert answer.code == 0
    assert yaml.safe_load((folder / "values.yaml").read_text())["replicas"] == 3
    assert (folder / "templates" / "interlane.yaml").exists()
    again = call("kube", "manifests", "--helm", str(folder))
    assert (again.code, "is not empty" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--kubernetes", "new"), "a version reads like 1.30"),
        (("--node-selector", "gpu"), "a label reads like KEY=VALUE"),
        (("--replicas", "0"), "--replicas"),
    ],
)
def test_what_cannot_be_understood_is_refused(
    call: Call, words: tuple[str, ...], says: str
) -> None:
    answer = call("kube", "manifests", *words)
    assert answer.code == 2
    assert says in answer.err


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_where_no_server_answers_the_exit_code_is_3(
    call: Call, command: str, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    answer = call("kube", command, "--kubeconfig", str(tmp_path / "config"))

    assert answer.code == 3
    assert "No API server answers at http://127.0.0.1:1" in answer.err


def test_an_agent_without_the_key_says_what_to_mount(call: Call, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    answer = call(
        *("kube", "agent", "--node", "here", "--devices", "cpu:1"),
        *("--kubeconfig", str(tmp_path / "config"), "--seal", str(tmp_path / "key")),
        *("--folder", str(tmp_path / "node")),
    )

    assert answer.code == 2
    assert "mount the Secret interlane-seal" in answer.err
