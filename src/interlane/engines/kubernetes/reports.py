"""What the agent of a node tells the scheduler: its devices, and how they are shared.

It lies in a ConfigMap of the scheduler's namespace, one for each node, which the agent replaces
every few seconds.  So the scheduler hears it wherever it runs, through the API server that it
watches anyway, and an agent needs no right to change nodes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from interlane.engines.kubernetes.annotations import DOMAIN
from interlane.lanes.report import DaemonReport, UnreadableReport, document_of, report_of
from interlane.live.port import Measured
from interlane.model import Device, GpuRef, InvalidInput, MachineId

LABEL: Final = f"{DOMAIN}/report"
"""What these objects are found by; its value is ``node``."""
SELECTOR: Final = f"{LABEL}=node"
FIELD: Final = "report"
PREFIX: Final = "interlane-node-"
NAME_MAX: Final = 253


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What an agent tells."""

    node: str
    at_s: float
    """On the node's clock, which may differ from ours."""
    devices: tuple[Device, ...]
    """By the numbers that the scheduler counts with; one that is lost offers nothing."""
    numbers: tuple[int, ...] = ()
    """These numbers, by the index that a device has in the daemon's report."""
    shared: DaemonReport | None = None
    """What the device daemon reports; None until it answers."""

    def measured(self, at_s: float) -> Measured | None:
        """Return what the driver is to know of it, heard at this time on our own clock."""
        if self.shared is None:
            return None
        gpus = tuple(GpuRef(MachineId(self.node), number) for number in self.numbers)
        return Measured(self.shared, at_s, gpus)


def config_map_of(report: NodeReport, namespace: str) -> dict[str, Any]:
    """Return the object that carries a report."""
    said = {
        "node": report.node,
        "at_s": round(report.at_s, 3),
        "devices": [[one.type, one.memory_mib, one.compute_milli] for one in report.devices],
        "numbers": list(report.numbers),
        "shared": None if report.shared is None else document_of(report.shared),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name_of(report.node),
            "namespace": namespace,
            "labels": {LABEL: "node"},
        },
        "data": {FIELD: json.dumps(said, separators=(",", ":"))},
    }


def name_of(node: str) -> str:
    """Return what the object of a node is called."""
    return f"{PREFIX}{node}"[:NAME_MAX]


def report_in(found: Mapping[str, Any]) -> NodeReport:
    """Return the report that an object carries; raises ``InvalidInput`` if it carries none."""
    name = found["metadata"]["name"]
    try:
        said = json.loads(found["data"][FIELD])
        return NodeReport(
            str(said["node"]),
            float(said["at_s"]),
            tuple(Device(*one) for one in said["devices"]),
            tuple(map(int, said["numbers"])),
            None if said["shared"] is None else report_of(said["shared"]),
        )
    except (KeyError, TypeError, ValueError, UnreadableReport) as error:
        raise InvalidInput(
            f"ConfigMap {name} carries no report of a node that can be read ({error}); its "
            "agent may be of another version."
        ) from None
