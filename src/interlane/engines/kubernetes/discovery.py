"""What a server serves: asked at the start, never concluded from its version."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from interlane.engines.kubernetes.client import ApiError, KubeClient

GROUPS: Final = ("scheduling.x-k8s.io", "scheduling.k8s.io", "scheduling.run.ai")
"""API groups that may have pod groups."""
PODGROUPS: Final = "podgroups"


@dataclass(frozen=True, slots=True)
class ServedApi:
    """What matters to us of what a server serves."""

    version: str = ""
    eviction: str = "v1beta1"
    """The version of the group ``policy`` that evictions are of."""
    pod_groups: Mapping[str, str] = field(default_factory=dict)
    """Versions of API groups that have pod groups."""

    def group_paths(self) -> list[str]:
        """Return where all pod groups are listed."""
        return [
            f"/apis/{group}/{version}/{PODGROUPS}" for group, version in self.pod_groups.items()
        ]


async def discover(client: KubeClient) -> ServedApi:
    """Ask a server what it serves."""
    version = await client.get("/version")
    groups = {one["name"]: one for one in (await client.get("/apis"))["groups"]}
    eviction = "v1beta1"
    if "policy" in groups and any(
        one["version"] == "v1" for one in groups["policy"]["versions"]
    ):
        eviction = "v1"
    found = {}
    for name in GROUPS:
        for one in groups.get(name, {}).get("versions") or ():
            if name not in found and await _serves(client, one["groupVersion"], PODGROUPS):
                found[name] = one["version"]
    return ServedApi(version.get("gitVersion") or "", eviction, found)


async def _serves(client: KubeClient, group_version: str, resource: str) -> bool:
    try:
        listed = await client.get(f"/apis/{group_version}")
    except ApiError as error:
        if error.is_passing:
            raise
        return False
    return any(one["name"] == resource for one in listed.get("resources") or ())
