"""All objects that are to be installed, as documents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from interlane import __version__
from interlane.engines.kubernetes.install import roles
from interlane.engines.kubernetes.install.roles import RoleRule
from interlane.engines.kubernetes.sealing import FIELD, SECRET

Document = dict[str, Any]

API_PORT: Final = 7411
AGENT_PORT: Final = 9441
NOBODY: Final = 65_532
"""As whom the scheduler runs."""
FOR_EVER: Final = 30_000_000
"""Probes, one in ten seconds."""
STATE: Final = "/var/lib/interlane"
KUBELET: Final = "/var/lib/kubelet"
SEAL: Final = "/etc/interlane/seal"
TLS: Final = "/etc/interlane/tls"


@dataclass(frozen=True, slots=True)
class Installation:
    """What differs from cluster to cluster."""

    namespace: str = "interlane"
    image: str = f"interlane:{__version__}"
    jobs_namespace: str = "default"
    replicas: int = 2
    devices: str = "nvml"
    node_selector: Mapping[str, str] = field(
        default_factory=lambda: {"nvidia.com/gpu.present": "true"}
    )
    policy_api: str = "policy/v1"
    """Of disruption budgets: ``policy/v1beta1`` before Kubernetes 1.21."""
    tls_secret: str = ""
    """A Secret with ``tls.crt`` and ``tls.key``; without one, something in front encrypts."""
    scheduler_options: Sequence[str] = ()
    """Words that follow ``interlane up``."""


def objects_of(wanted: Installation) -> list[Document]:
    """Return all objects, in an order in which they can be created."""
    return [
        _namespace(wanted),
        *_accounts(wanted),
        *_roles(wanted),
        _scheduler(wanted),
        _service(wanted),
        _budget(wanted),
        _agents(wanted),
    ]


def _named(kind: str, api: str, name: str, namespace: str | None = None) -> Document:
    meta: Document = {"name": name, "labels": {"app.kubernetes.io/part-of": "interlane"}}
    if namespace is not None:
        meta["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": meta}


def _namespace(wanted: Installation) -> Document:
    made = _named("Namespace", "v1", wanted.namespace)
    # Agents mount folders of the kubelet and see the processes of pods.
    made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"
    return made


# -- who may do what ------------------------------------------------------------------


def _accounts(wanted: Installation) -> Iterator[Document]:
    for name in (roles.SCHEDULER, roles.NODE):
        yield _named("ServiceAccount", "v1", name, wanted.namespace)


def _roles(wanted: Installation) -> Iterator[Document]:
    for name, rules in (
        (roles.SCHEDULER, roles.SCHEDULER_EVERYWHERE),
        (roles.NODE, roles.NODE_EVERYWHERE),
    ):
        yield from _granted(wanted, name, rules, None)
    for name, rules, where in (
        (roles.SCHEDULER, roles.SCHEDULER_AT_HOME, wanted.namespace),
        (roles.NODE, roles.NODE_AT_HOME, wanted.namespace),
        (f"{roles.SCHEDULER}-jobs", roles.SCHEDULER_FOR_JOBS, wanted.jobs_namespace),
    ):
        yield from _granted(wanted, name, rules, where)


def _granted(
    wanted: Installation, name: str, rules: Sequence[RoleRule], where: str | None
) -> Iterator[Document]:
    """Yield a role and who has it; one for all namespaces where none is named."""
    api, prefix = "rbac.authorization.k8s.io/v1", "Cluster" if where is None else ""
    role = _named(f"{prefix}Role", api, name, where)
    yield {**role, "rules": [one.document for one in rules]}
    account = {
        "kind": "ServiceAccount",
        "name": name.removesuffix("-jobs"),
        "namespace": wanted.namespace,
    }
    yield {
        **_named(f"{prefix}RoleBinding", api, name, where),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": f"{prefix}Role",
            "name": name,
        },
        "subjects": [account],
    }


# -- the scheduler --------------------------------------------------------------------

CLOSED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _encrypted(wanted: Installation) -> tuple[str, ...]:
    """Return how nobody reads the tokens of those who speak to the scheduler."""
    if not wanted.tls_secret:
        return ("--behind-proxy",)
    return ("--tls-cert", f"{TLS}/tls.crt", "--tls-key", f"{TLS}/tls.key")


def _scheduler(wanted: Installation) -> Document:
    labels = {"app": roles.SCHEDULER}
    scheme = "HTTPS" if wanted.tls_secret else "HTTP"
    secret = (
        [{"name": "tls", "secret": {"secretName": wanted.tls_secret}}]
        if wanted.tls_secret
        else []
    )
    container = {
        "name": "scheduler",
        "image": wanted.image,
        "command": [
            *("interlane", "up", "--engine", "kubernetes"),
            *("--namespace", wanted.jobs_namespace, "--home", wanted.namespace),
            *("--host", "0.0.0.0", "--port", str(API_PORT), "--state", f"{STATE}/state"),
            *_encrypted(wanted),
            *wanted.scheduler_options,
        ],
        # What is compiled at the start is kept where it may be written.
        "env": [{"name": "NUMBA_CACHE_DIR", "value": f"{STATE}/compiled"}],
        "ports": [{"name": "http", "containerPort": API_PORT}],
        "readinessProbe": _probe("/readyz", API_PORT, scheme),
        # A server that stands by does not answer, however long: only one that has led and is
        # silent is started again.
        "startupProbe": {**_probe("/healthz", API_PORT, scheme), "failureThreshold": FOR_EVER},
        "livenessProbe": _probe("/healthz", API_PORT, scheme),
        "securityContext": dict(CLOSED),
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
        "volumeMounts": [
            {"name": "state", "mountPath": STATE},
            {"name": "tmp", "mountPath": "/tmp"},
            *({"name": one["name"], "mountPath": TLS, "readOnly": True} for one in secret),
        ],
    }
    spec = {
        "serviceAccountName": roles.SCHEDULER,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "fsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        # The cluster holds the truth: what lies here is history, and may be lost.
        "volumes": [
            {"name": "state", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            *secret,
        ],
    }
    made = _named("Deployment", "apps/v1", roles.SCHEDULER, wanted.namespace)
    made["spec"] = {
        "replicas": wanted.replicas,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": _scraped(API_PORT)},
            "spec": spec,
        },
    }
    return made


def _probe(path: str, port: int, scheme: str = "HTTP") -> Document:
    return {
        "httpGet": {"path": path, "port": port, "scheme": scheme},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 6,
    }


def _scraped(port: int) -> dict[str, str]:
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }


def _service(wanted: Installation) -> Document:
    made = _named("Service", "v1", roles.SCHEDULER, wanted.namespace)
    made["spec"] = {
        "selector": {"app": roles.SCHEDULER},
        "ports": [{"name": "http", "port": API_PORT, "targetPort": API_PORT}],
    }
    return made


def _budget(wanted: Installation) -> Document:
    made = _named("PodDisruptionBudget", wanted.policy_api, roles.SCHEDULER, wanted.namespace)
    made["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {"app": roles.SCHEDULER}}}
    return made


# -- agents ---------------------------------------------------------------------------


def _agents(wanted: Installation) -> Document:
    labels = {"app": roles.NODE}
    folders = {
        "plugins": f"{KUBELET}/device-plugins",
        "holders": f"{KUBELET}/pod-resources",
        "state": STATE,
    }
    container = {
        "name": "agent",
        "image": wanted.image,
        "command": [
            *("interlane", "kube", "agent", "--node", "$(NODE_NAME)"),
            *("--namespace", wanted.namespace, "--seal", f"{SEAL}/{FIELD}"),
            *("--devices", wanted.devices, "--port", str(AGENT_PORT)),
        ],
        "env": [
            {
                "name": "NODE_NAME",
                "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
            },
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "NUMBA_CACHE_DIR", "value": "/tmp/compiled"},
        ],
        "ports": [{"name": "http", "containerPort": AGENT_PORT}],
        "readinessProbe": _probe("/healthz", AGENT_PORT),
        "livenessProbe": {**_probe("/healthz", AGENT_PORT), "initialDelaySeconds": 120},
        # Root, because the kubelet's folder is closed to all others; of its powers there are
        # left those to end a program that is stuck, and not to be kept waiting itself.
        "securityContext": {
            **CLOSED,
            "runAsUser": 0,
            "capabilities": {"drop": ["ALL"], "add": ["KILL", "SYS_NICE"]},
        },
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "volumeMounts": [
            *({"name": name, "mountPath": path} for name, path in folders.items()),
            {"name": "seal", "mountPath": SEAL, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    spec = {
        "serviceAccountName": roles.NODE,
        # The device daemon knows programs by their process, and sees when one is gone.
        "hostPID": True,
        "priorityClassName": "system-node-critical",
        "nodeSelector": dict(wanted.node_selector),
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            *(
                {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
                for name, path in folders.items()
            ),
            {"name": "seal", "secret": {"secretName": SECRET}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    made = _named("DaemonSet", "apps/v1", roles.NODE, wanted.namespace)
    made["spec"] = {
        "selector": {"matchLabels": labels},
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
        "template": {
            "metadata": {"labels": labels, "annotations": _scraped(AGENT_PORT)},
            "spec": spec,
        },
    }
    return made
