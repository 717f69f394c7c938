"""Real nodes for a real control plane: kubelets with containerd, all on this machine.

Each node has a mount namespace of its own, in which the kubelet's folder (whose place is fixed)
is private, and a containerd of its own, because a kubelet ends what it does not know.  Needs
root, version 1 of control groups, and the packages in ``PACKAGES``.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from interlane.testing.kube_cluster import SERVER_ADDRESS, KubeCluster, KubeProgram, free_port
from interlane.testing.kube_image import PAUSE, write_images
from interlane.testing.kube_packages import PACKAGES
from interlane.testing.waiting import until

TOOLS: Final = (
    *("containerd", "ctr", "runc", "busybox", "unshare", "nsenter", "iptables"),
    *("ip", "socat"),
)
GROUPS: Final = Path("/sys/fs/cgroup")
CONTROLLERS: Final = (
    *("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"),
)
PLUGINS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
KUBELET: Final = Path("/var/lib/kubelet")
LOGS: Final = Path("/var/log/pods")
PRIVATE: Final = (
    KUBELET,
    LOGS,
    Path("/var/log/containers"),
    Path("/var/lib/interlane"),
    Path("/run/netns"),
)
"""Folders that each node has of its own, though their places are fixed."""


def why_no_nodes() -> str | None:
    """Return in one sentence why no kubelet can run here; None if one can."""
    if os.getuid() != 0:
        return "Kubelets need root."
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"There is no {', '.join(missing)}; 'apt-get install {PACKAGES}' brings all."
    if not (GROUPS / "memory").is_dir():
        return "This kubelet needs version 1 of control groups."
    if not any(path.is_dir() for path in PLUGINS):
        return f"There are no network plugins; 'apt-get install {PACKAGES}' brings them."
    return None


@dataclass
class KubeNode:
    """One node that runs."""

    name: str
    number: int
    folder: Path
    cluster: KubeCluster
    holder: "subprocess.Popen[bytes]"
    """Keeps the mount namespace."""
    containerd: KubeProgram
    kubelet: KubeProgram

    @property
    def group(self) -> str:
        """The control group of its pods."""
        return f"kubetest-{os.getpid()}-{self.number}"

    @property
    def own_group(self) -> str:
        """The control group of what runs pods."""
        return f"{self.group}-sys"

    def inside(self, *command: str) -> tuple[str, ...]:
        """Return how to run a command on the node."""
        return ("nsenter", "-t", str(self.holder.pid), "-m", "--", *command)

    def output(self, pod: dict[str, Any], container: str) -> str:
        """Return what a container has printed, all its runs one after the other."""
        meta = pod["metadata"]
        folder = self.folder / "private" / LOGS.relative_to("/")
        folder /= f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
        files = sorted((folder / container).glob("*.log"), key=lambda one: int(one.stem))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return "".join(_said(line) for line in lines)

    def close(self) -> None:
        """End everything on the node, and leave nothing behind."""
        self.kubelet.end()
        for group in (self.group, self.own_group):
            _kill_all(group)
        self.containerd.kill()
        for group in (self.group, self.own_group):
            until(partial(_is_empty, group), f"the end of all in {group}")
            _remove_group(group)
        self.holder.kill()
        self.holder.wait()


def _said(line: str) -> str:
    """Return what a line of a container's log says: time, stream and kind go before it."""
    _, _, kind, *text = line.split(" ", 3)
    return "".join(text) + ("\n" if kind == "F" else "")


@contextmanager
def kube_nodes(cluster: KubeCluster, count: int = 1) -> Iterator[list[KubeNode]]:
    """Run nodes for as long as the context lasts, and wait until they are ready."""
    why = why_no_nodes()
    assert why is None, why
    nodes: list[KubeNode] = []
    with tempfile.TemporaryDirectory(prefix="interlane-nodes-") as name:
        folder = Path(name)
        images = folder / "images.tar"
        write_images(images)
        try:
            server = _listen_for_pods(cluster, folder)
            for number in range(count):
                nodes.append(_made(cluster, folder / f"n{number}", number))
                _begin(nodes[-1], images)
            for node in nodes:
                _wait_ready(node)
            yield nodes
        finally:
            for node in nodes:
                node.close()
            server.end()
            _address("del")


def _listen_for_pods(cluster: KubeCluster, folder: Path) -> KubeProgram:
    """Let pods reach the API server where services are; in other clusters a proxy does so."""
    _address("add")
    where = f"TCP-LISTEN:443,bind={SERVER_ADDRESS},fork,reuseaddr"
    to = "TCP:" + cluster.url.rpartition("/")[2]
    made = KubeProgram("socat", ("socat", where, to), folder / "socat.log")
    made.start()
    return made


def _address(verb: str) -> None:
    words = ("ip", "address", verb, f"{SERVER_ADDRESS}/32", "dev", "lo")
    subprocess.run(words, check=True, capture_output=True)


def _made(cluster: KubeCluster, folder: Path, number: int) -> KubeNode:
    name = f"real-{number}"
    for path in PRIVATE:
        (folder / "private" / path.relative_to("/")).mkdir(parents=True)
        path.mkdir(parents=True, exist_ok=True)
    binds = "; ".join(
        f"mount --bind {folder / 'private' / path.relative_to('/')} {path}" for path in PRIVATE
    )
    script = f"{binds}; mount --make-rshared /; exec sleep 2147483647"
    apart = ("unshare", "-m", "--propagation", "private")
    holder = subprocess.Popen((*apart, "sh", "-ec", script))
    until(lambda: _is_mounted(holder.pid), "the node's mounts")
    node = KubeNode(
        name,
        number,
        folder,
        cluster,
        holder,
        KubeProgram("containerd", (), folder / "containerd.log"),
        KubeProgram("kubelet", (), folder / "kubelet.log"),
    )
    _make_groups(node)
    _write_containerd(node)
    _write_network(node)
    _write_kubelet(node)
    return node


def _is_mounted(pid: int) -> bool:
    seen = Path(f"/proc/{pid}/mountinfo").read_text()
    words = Path(f"/proc/{pid}/comm").read_text().strip()
    return words == "sleep" and all(f" {path} " in seen for path in PRIVATE)


def _begin(node: KubeNode, images: Path) -> None:
    socket = str(node.folder / "containerd.sock")
    joined = GROUPS / "pids" / node.own_group / "cgroup.procs"
    run = f'echo $$ > {joined}; exec "$@"'
    config = str(node.folder / "containerd.toml")
    node.containerd.command = node.inside("sh", "-c", run, "-", "containerd", "-c", config)
    node.containerd.start()
    until(lambda: _answers(node, socket), "containerd's first answer")
    subprocess.run(
        node.inside(
            *("ctr", "-a", socket, "-n", "k8s.io", "images", "import"),
            *("--snapshotter", "native", str(images)),
        ),
        check=True,
        capture_output=True,
    )
    kubelet = str(node.cluster.programs.path("kubelet"))
    node.kubelet.command = node.inside(
        kubelet,
        f"--kubeconfig={node.cluster.kubeconfig()}",
        f"--config={node.folder / 'kubelet.yaml'}",
        "--container-runtime=remote",
        f"--container-runtime-endpoint=unix://{socket}",
        f"--hostname-override={node.name}",
        f"--pod-infra-container-image={PAUSE}",
    )
    node.kubelet.start()


def _answers(node: KubeNode, socket: str) -> bool:
    node.containerd.must_run()
    asked = node.inside("ctr", "-a", socket, "version")
    return subprocess.run(asked, capture_output=True).returncode == 0


def _wait_ready(node: KubeNode) -> None:
    api = node.cluster.api()

    def is_ready() -> bool:
        node.kubelet.must_run()
        found = [
            one for one in api.items("/api/v1/nodes") if one["metadata"]["name"] == node.name
        ]
        conditions = found[0]["status"].get("conditions", ()) if found else ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    until(is_ready, f"node {node.name}")


# -- files ----------------------------------------------------------------------------


def _write_containerd(node: KubeNode) -> None:
    plugins = next(path for path in PLUGINS if path.is_dir())
    (node.folder / "containerd.toml").write_text(f"""\
version = 2
root = "{node.folder}/containerd"
state = "{node.folder}/state"
[grpc]
  address = "{node.folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{node.folder}/cni"
""")


def _write_network(node: KubeNode) -> None:
    """Give pods addresses of their own, which other pods of this machine can reach."""
    folder = node.folder / "cni"
    folder.mkdir()
    subnet = f"10.{200 + node.number}.{os.getpid() % 250}.0/24"
    ranges = {"type": "host-local", "dataDir": str(node.folder / "ipam"), "subnet": subnet}
    ranges["routes"] = [{"dst": "0.0.0.0/0"}]  # type: ignore[assignment]
    conf = {
        "cniVersion": "0.3.1",
        "name": node.group,
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ranges}],
    }
    (folder / "10-ptp.conflist").write_text(json.dumps(conf))


def _write_kubelet(node: KubeNode) -> None:
    said = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "address": "127.0.0.1",
        "port": free_port(),
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.group}",
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "hairpinMode": "none",
        "resolvConf": "",
        "maxPods": 50,
        # The disk of a machine that runs tests may be nearly full.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "5s",
        "nodeStatusUpdateFrequency": "5s",
    }
    (node.folder / "kubelet.yaml").write_text(yaml.safe_dump(said))


# -- control groups -------------------------------------------------------------------


def _make_groups(node: KubeNode) -> None:
    for controller in CONTROLLERS:
        if not (GROUPS / controller).is_dir():
            continue
        path = GROUPS / controller / node.group
        path.mkdir(exist_ok=True)
        if controller == "cpuset":
            for name in ("cpuset.cpus", "cpuset.mems"):
                (path / name).write_text((GROUPS / controller / name).read_text())
    (GROUPS / "pids" / node.own_group).mkdir(exist_ok=True)


def _pids(group: str) -> list[int]:
    found: list[int] = []
    for file in (GROUPS / "pids" / group).rglob("cgroup.procs"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def _is_empty(group: str) -> bool:
    return not _pids(group)


def _kill_all(group: str) -> None:
    for pid in _pids(group):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _remove_group(group: str) -> None:
    for controller in GROUPS.iterdir():
        top = controller / group
        folders: Sequence[Path] = [one for one in top.rglob("*") if one.is_dir()]
        for path in [*sorted(folders, key=lambda one: -len(one.parts)), top]:
            with suppress(OSError):
                path.rmdir()
