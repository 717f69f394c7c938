"""Who holds which GPU of a cluster, from what is written in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.client import ApiError, KubeClient
from interlane.engines.kubernetes.nodes import sight_of
from interlane.engines.kubernetes.reports import SELECTOR, NodeReport, report_in
from interlane.model import InvalidInput

OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """One GPU, or a slice of one."""

    node: str
    number: int
    type: str
    held_milli: int
    pods: tuple[str, ...]
    slowdown: float | None = None
    """By how much turns slow down whoever waits the longest; None if nobody was measured."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """All GPUs, and pods that wait."""

    gpus: tuple[GpuStatus, ...]
    waiting: tuple[tuple[str, str], ...]
    """Pods that are ours to place, and why each waits."""


async def status(client: KubeClient, home: str) -> ClusterStatus:
    """Look at a cluster."""
    nodes, _ = await client.items("/api/v1/nodes")
    pods, _ = await client.items("/api/v1/pods")
    try:
        maps, _ = await client.items(
            f"/api/v1/namespaces/{home}/configmaps", labelSelector=SELECTOR
        )
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        maps = []
    return status_of(nodes, pods, _readable(maps))


def _readable(maps: Iterable[Mapping[str, Any]]) -> list[NodeReport]:
    found = []
    for one in maps:
        try:
            found.append(report_in(one))
        except InvalidInput:
            continue  # 'kube doctor' says so
    return found


def status_of(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    reports: Iterable[NodeReport],
) -> ClusterStatus:
    """Return who holds what."""
    listed = list(pods)
    held: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for pod in listed:
        for key, name, milli in _holdings(pod):
            held.setdefault(key, []).append((name, milli))
    slow = {key: value for report in reports for key, value in _slowdowns(report).items()}
    gpus = []
    for node in nodes:
        machine = sight_of(node, {}).machine
        for number in range(machine.gpus):
            key = (machine.id, number)
            there = sorted(held.get(key, ()))
            gpus.append(
                GpuStatus(
                    machine.id,
                    number,
                    machine.device(number).type,
                    sum(milli for _, milli in there),
                    tuple(name for name, _ in there),
                    slow.get(key),
                )
            )
    return ClusterStatus(tuple(gpus), tuple(_waiting(listed)))


def _holdings(pod: Mapping[str, Any]) -> Iterable[tuple[tuple[str, int], str, int]]:
    said = pod["metadata"].get("annotations") or {}
    node = pod["spec"].get("nodeName")
    if not node or (pod.get("status") or {}).get("phase") in OVER:
        return
    numbers, milli = said.get(words.GPU_INDEX, ""), said.get(words.GPU_MILLI, "")
    for number in numbers.split(","):
        if number.isdecimal() and milli.isdecimal():
            yield (node, int(number)), _name(pod), int(milli)


def _waiting(pods: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    for pod in pods:
        spec, now = pod["spec"], pod.get("status") or {}
        if spec.get("schedulerName") != words.SCHEDULER or spec.get("nodeName"):
            continue
        why = [
            one.get("message") or one.get("reason") or ""
            for one in now.get("conditions") or ()
            if one.get("type") == "PodScheduled" and one.get("status") == "False"
        ]
        yield _name(pod), why[0] if why else "Nobody has looked at it yet."


def _name(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _slowdowns(report: NodeReport) -> dict[tuple[str, int], float]:
    if report.shared is None:
        return {}
    return {
        (report.node, report.numbers[device.index]): max(
            one.run.turns_slowdown for one in device.processes
        )
        for device in report.shared.devices
        if device.processes and device.index < len(report.numbers)
    }
