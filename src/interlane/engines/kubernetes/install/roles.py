"""What each of our programs may do in a cluster, and nothing else.

A rule that is missing here shows as a 403 in the tests with real nodes, where scheduler and
agents have these rights and no others.
"""

from dataclasses import dataclass
from typing import Any, Final

from interlane.engines.kubernetes.discovery import GROUPS, PODGROUPS
from interlane.engines.kubernetes.sealing import SECRET

SCHEDULER: Final = "interlane-scheduler"
NODE: Final = "interlane-node"
READ: Final = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class RoleRule:
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Objects that it holds for; all, if empty."""

    @property
    def document(self) -> dict[str, Any]:
        """The rule as a role has it."""
        made = {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        return {**made, "resourceNames": list(self.names)} if self.names else made


SCHEDULER_EVERYWHERE: Final = (
    RoleRule("", ("nodes", "pods"), READ),
    RoleRule("", ("pods/binding", "pods/eviction"), ("create",)),
    RoleRule("", ("pods/status",), ("patch",)),
    RoleRule("", ("pods",), ("delete",)),
    RoleRule("", ("events",), ("create",)),
    RoleRule("batch", ("jobs",), READ),
    *(RoleRule(group, (PODGROUPS,), READ) for group in GROUPS),
)
"""What the scheduler may do in all namespaces."""

SCHEDULER_AT_HOME: Final = (
    RoleRule("coordination.k8s.io", ("leases",), ("create",)),
    RoleRule("coordination.k8s.io", ("leases",), ("get", "update"), ("interlane",)),
    RoleRule("", ("secrets",), ("create",)),
    RoleRule("", ("secrets",), ("get",), (SECRET,)),
    RoleRule("", ("configmaps",), READ),
)
"""What it may do in its own namespace: lead, keep its key, and hear its agents."""

SCHEDULER_FOR_JOBS: Final = (
    RoleRule("batch", ("jobs",), ("create", "delete")),
    RoleRule("", ("services",), ("create",)),
    RoleRule("", ("pods",), ("patch",)),
    RoleRule("", ("pods/log",), ("get",)),
)
"""What it may do where the jobs of its own users run."""

NODE_EVERYWHERE: Final = (RoleRule("", ("pods",), READ),)
NODE_AT_HOME: Final = (RoleRule("", ("configmaps",), ("create", "update")),)
"""What an agent may do: know the pods of its node, and report."""
