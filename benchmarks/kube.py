"""Schedule openb's pods on a thousand simulated nodes of a real API server, twice.

    python -m benchmarks.kube [--nodes 1000] [--pods 2000] [--placer pack]

Once by interlane and once by the stock kube-scheduler of the same build, in one run on the same
server, the same nodes and the same pods in arrival order.  A pod that shares a GPU asks the
stock scheduler for a whole one: it knows no other way.  ``gpu_allocation_ratio`` is what pods
asked for over the GPUs that are in use for it: the fewer of these, the better.  Prints JSON.
"""

import argparse
import asyncio
import csv
import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from interlane.engines.kubernetes.client import KubeClient
from interlane.engines.kubernetes.config import server_of
from interlane.testing.kube_audit import bound_pods, findings
from interlane.testing.kube_cluster import KubeCluster, kube_cluster
from interlane.testing.kube_server import SERVING, TOLD
from interlane.testing.kube_world import empty, labelled, node_document
from interlane.traces.data import data_dir

TRACE = "pai-v2023/openb_pod_list_default.csv"
PODS = "/api/v1/namespaces/default/pods"
IN_FLIGHT = 24
GPUS = 8
NODE_CPU_MILLI = 128_000
NODE_MEMORY_MIB = 1_048_576
MOST_S = 900.0


@dataclass(frozen=True, slots=True)
class AskedPod:
    """One pod of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int

    def document(self, scheduler: str) -> dict[str, Any]:
        """Return the object, in the words that a scheduler knows."""
        asked = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        annotations = {}
        if self.gpus and self.gpu_milli < 1000 and scheduler == "interlane":
            annotations["interlane.dev/gpu-fraction"] = f"{self.gpu_milli / 1000:.3f}"
            annotations["interlane.dev/gpu-count"] = f"{self.gpus}"
        elif self.gpus:
            asked["nvidia.com/gpu"] = f"{self.gpus}"
        resources = {"requests": asked, "limits": asked}
        container = {"name": "main", "image": "played", "resources": resources}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "annotations": annotations},
            "spec": {"schedulerName": scheduler, "containers": [container]},
        }


def pods_of(path: Path, most: int) -> list[AskedPod]:
    with path.open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["creation_time"]))
    return [
        AskedPod(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]) if int(row["num_gpu"]) else 0,
        )
        for row in rows[:most]
    ]


async def create(kubeconfig: Path, path: str, documents: list[dict[str, Any]]) -> None:
    client = KubeClient(server_of(kubeconfig), 60.0)
    await client.open()
    waiting = list(reversed(documents))

    async def work() -> None:
        while waiting:
            await client.post(path, waiting.pop())

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    await client.close()


async def watched(kubeconfig: Path, version: str, count: int) -> list[float]:
    """Return when pods were seen to be bound, until so many are or it takes too long."""
    client = KubeClient(server_of(kubeconfig), 60.0)
    await client.open()
    bound: dict[str, float] = {}
    try:
        async with asyncio.timeout(MOST_S):
            async for event in client.watch(PODS, version, MOST_S):
                if event["object"].get("spec", {}).get("nodeName"):
                    bound.setdefault(event["object"]["metadata"]["uid"], time.monotonic())
                    if len(bound) == count:
                        break
    except TimeoutError:
        pass
    await client.close()
    return sorted(bound.values())


def measured(cluster: KubeCluster, pods: list[AskedPod], scheduler: str) -> dict[str, Any]:
    """Create the pods, wait until all are bound, and tell how that went."""
    kubeconfig = cluster.kubeconfig()
    version = cluster.api().get(PODS, limit="1")["metadata"]["resourceVersion"]
    documents = [one.document(scheduler) for one in pods]

    async def both() -> tuple[float, float, list[float]]:
        watch = asyncio.create_task(watched(kubeconfig, version, len(pods)))
        await asyncio.sleep(0.5)
        begin_s = time.monotonic()
        await create(kubeconfig, PODS, documents)
        created_s = time.monotonic() - begin_s
        return begin_s, created_s, await watch

    begin_s, created_s, bound = asyncio.run(both())
    span_s = bound[-1] - begin_s if bound else 0.0
    on_gpus = {(one.node, gpu) for one in bound_pods(cluster.api()) for gpu in one.gpus}
    asked_milli = sum(one.gpus * one.gpu_milli for one in pods)
    whole = sum(one.gpus for one in pods)
    used = len(on_gpus) if scheduler == "interlane" else whole
    return {
        "pods": len(pods),
        "bound": len(bound),
        "created_per_s": round(len(pods) / created_s, 1),
        "bound_per_s": round(len(bound) / span_s, 1) if span_s else 0.0,
        "seconds": round(span_s, 2),
        "gpus_in_use": used,
        "gpu_allocation_ratio": round(asked_milli / 1000 / used, 4) if used else None,
        "findings": findings(cluster.api())[:5],
    }


def by_interlane(cluster: KubeCluster, pods: list[AskedPod], placer: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "interlane.testing.kube_server"]
        command += ["--kubeconfig", str(cluster.kubeconfig()), "--state", folder]
        command += ["--placer", placer, "--identity", "benchmark", "--lease-s", "120"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line.startswith(SERVING), line
            found = measured(cluster, pods, "interlane")
            server.send_signal(signal.SIGTERM)
            server.wait(120)
        told = json.loads(Path(folder, TOLD).read_text())
    for name, what in (("decision", "spans_s"), ("decision_cpu", "spans_cpu_s")):
        spans = sorted(told[what])
        found[f"{name}_p50_ms"] = round(1000 * spans[len(spans) // 2], 2)
        found[f"{name}_p99_ms"] = round(1000 * spans[int(len(spans) * 0.99)], 2)
    return {**found, "cpu_s": round(told["cpu_s"], 2), "memory_mib": told["memory_mib"]}


def by_stock(cluster: KubeCluster, pods: list[AskedPod]) -> dict[str, Any]:
    scheduler = cluster.start_scheduler(kube_api_qps=2000, kube_api_burst=4000)
    time.sleep(5.0)  # it says nothing when it is ready
    found = measured(cluster, pods, "default-scheduler")
    found["cpu_s"] = _cpu_s(scheduler.pid)
    scheduler.end()
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return round((int(fields[11]) + int(fields[12])) / 100, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--placer", default="pack")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", choices=("interlane", "stock"))
    arguments = parser.parse_args()
    folder = data_dir(arguments.data)
    assert folder is not None, "name the folder of published data with --data or INTERLANE_DATA"
    pods = pods_of(folder / TRACE, arguments.pods)
    report: dict[str, Any] = {"nodes": arguments.nodes}
    with kube_cluster() as cluster:
        for name in ("interlane", "stock"):
            if arguments.only not in (None, name):
                continue
            empty(cluster.api())
            machines = [
                labelled(f"node-{number:04d}", GPUS, NODE_CPU_MILLI, NODE_MEMORY_MIB)
                for number in range(arguments.nodes)
            ]
            nodes = [node_document(one) for one in machines]
            asyncio.run(create(cluster.kubeconfig(), "/api/v1/nodes", nodes))
            print(f"measuring {name} ...", file=sys.stderr)
            if name == "interlane":
                report[name] = by_interlane(cluster, pods, arguments.placer)
            else:
                report[name] = by_stock(cluster, pods)
    if "interlane" in report and "stock" in report:
        ours, stock = report["interlane"], report["stock"]
        report["throughput_ratio"] = round(ours["bound_per_s"] / stock["bound_per_s"], 2)
        report["gpu_allocation_gain"] = round(
            ours["gpu_allocation_ratio"] / stock["gpu_allocation_ratio"], 3
        )
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
