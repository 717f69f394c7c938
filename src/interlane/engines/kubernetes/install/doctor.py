"""What a cluster can and cannot do for us, by asking it: never by its version."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from interlane.engines.kubernetes.annotations import NVIDIA_GPU, SHARE
from interlane.engines.kubernetes.client import ApiError, Document, KubeClient
from interlane.engines.kubernetes.discovery import ServedApi, discover
from interlane.engines.kubernetes.install import roles
from interlane.engines.kubernetes.install.roles import RoleRule
from interlane.engines.kubernetes.reports import SELECTOR, report_in
from interlane.model import InvalidInput

FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One thing that was looked at."""

    name: str
    holds: bool
    here: str
    """What was found."""
    follows: str
    """What that means."""
    is_needed: bool = False
    """Whether nothing works without it."""


async def findings(client: KubeClient, home: str, jobs: str) -> list[ClusterFinding]:
    """Look at a cluster as whoever asks.

    Args:
        client: speaks to its API server.
        home: the scheduler's namespace.
        jobs: the namespace of the jobs of its own users.
    """
    served = await discover(client)
    groups = {
        one["name"]: [each["version"] for each in one["versions"]]
        for one in (await client.get("/apis"))["groups"]
    }
    found = [
        ClusterFinding("API server", True, served.version, "it answers.", is_needed=True),
        *_served(groups, served),
        await _rights(client, home, jobs),
        *await _nodes(client),
        await _agents(client, home),
    ]
    return found


def _served(groups: dict[str, list[str]], served: ServedApi) -> Iterator[ClusterFinding]:
    leases = "v1" in groups.get("coordination.k8s.io", ())
    yield ClusterFinding(
        "leases",
        leases,
        "served" if leases else "not served",
        "several servers may run, and one leads."
        if leases
        else "run one server only, with --no-lead.",
    )
    budgets = groups.get("policy", [])
    yield ClusterFinding(
        "disruption budgets",
        bool(budgets),
        ", ".join(budgets) or "not served",
        f"preemption evicts by policy/{served.eviction}, which respects them.",
    )
    gangs = served.pod_groups
    yield ClusterFinding(
        "pod groups",
        bool(gangs),
        ", ".join(f"{name}/{version}" for name, version in gangs.items()) or "not served",
        "gangs are read from them, and from annotations."
        if gangs
        else "gangs are read from annotations.",
    )
    claims = groups.get("resource.k8s.io", [])
    yield ClusterFinding(
        "resource claims",
        bool(claims),
        ", ".join(claims) or "not served",
        "device plugins are used all the same."
        if claims
        else "devices are handed out by device plugins.",
    )


async def _rights(client: KubeClient, home: str, jobs: str) -> ClusterFinding:
    """Find out what whoever asks lacks to be the scheduler."""
    lacking = [
        *await _lacking(client, roles.SCHEDULER_EVERYWHERE, ""),
        *await _lacking(client, roles.SCHEDULER_AT_HOME, home),
        *await _lacking(client, roles.SCHEDULER_FOR_JOBS, jobs),
    ]
    few = ", ".join(lacking[:4]) + (f" and {len(lacking) - 4} more" if lacking[4:] else "")
    return ClusterFinding(
        "rights of this account",
        not lacking,
        f"lacks {few}" if lacking else "all that a scheduler needs",
        "'interlane up --engine kubernetes' may run as this account."
        if not lacking
        else "install the roles of 'interlane kube manifests'.",
    )


async def _lacking(client: KubeClient, rules: Sequence[RoleRule], namespace: str) -> list[str]:
    lacking = []
    for rule in rules:
        for resource in rule.resources:
            for verb in rule.verbs:
                if not await _may(client, rule, resource, verb, namespace):
                    lacking.append(f"{verb} {resource}")
    return lacking


async def _may(
    client: KubeClient, rule: RoleRule, resource: str, verb: str, namespace: str
) -> bool:
    name, _, part = resource.partition("/")
    asked = {"group": rule.group, "resource": name, "verb": verb}
    asked |= {"subresource": part} if part else {}
    asked |= {"namespace": namespace} if namespace else {}
    asked |= {"name": rule.names[0]} if rule.names else {}
    answer = await client.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        },
    )
    return bool(answer["status"]["allowed"])


def _is_heard(found: Document) -> bool:
    try:
        return report_in(found).shared is not None
    except InvalidInput:
        return False


async def _seen(client: KubeClient, path: str, **query: str) -> list[Document] | None:
    """Return objects; None if this account may not see them."""
    try:
        return (await client.items(path, **query))[0]
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return None


async def _nodes(client: KubeClient) -> list[ClusterFinding]:
    nodes = await _seen(client, "/api/v1/nodes")
    if nodes is None:
        return [
            ClusterFinding("nodes", False, "this account may not see them", "ask as another.")
        ]
    offers = [(one.get("status") or {}).get("allocatable") or {} for one in nodes]
    shared = sum(1 for one in offers if int(one.get(SHARE, 0)))
    whole = sum(1 for one in offers if int(one.get(NVIDIA_GPU, 0)))
    both = sum(1 for one in offers if int(one.get(SHARE, 0)) and int(one.get(NVIDIA_GPU, 0)))
    found = [
        ClusterFinding(
            "nodes with shared GPUs",
            shared > 0,
            f"{shared} of {len(nodes)}",
            "pods may ask for parts of a GPU."
            if shared
            else "no pod can have a part of a GPU; install the agents of 'kube manifests'.",
        ),
        ClusterFinding(
            "nodes with whole GPUs",
            whole > 0,
            f"{whole} of {len(nodes)}",
            "pods may ask for nvidia.com/gpu.",
        ),
    ]
    if both:
        found.append(
            ClusterFinding(
                "GPUs counted once",
                False,
                f"{both} nodes advertise both",
                "two device plugins give out the same GPUs; keep one of them on each node.",
            )
        )
    return found


async def _agents(client: KubeClient, home: str) -> ClusterFinding:
    path = f"/api/v1/namespaces/{home}/configmaps"
    found = await _seen(client, path, labelSelector=SELECTOR)
    if found is None:
        return ClusterFinding(
            "agents", False, "this account may not read their reports", "ask as another."
        )
    heard = sum(map(_is_heard, found))
    silent = len(found) - heard
    return ClusterFinding(
        "agents",
        heard > 0 and not silent,
        f"{heard} report, {silent} say nothing that can be read",
        "programs on shared GPUs take turns, and are measured."
        if heard
        else "no program takes turns.",
    )
