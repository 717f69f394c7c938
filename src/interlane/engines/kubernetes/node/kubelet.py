"""Speaks to the kubelet of this node: registers plugins, and asks who holds which devices."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from interlane.engines.kubernetes.node import messages
from interlane.engines.kubernetes.node.messages import HOLDERS, PLUGIN

ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Kubelet:
    """Where a kubelet listens: in the folder in which it keeps everything."""

    folder: Path

    @property
    def plugins(self) -> Path:
        """Where device plugins put their sockets."""
        return self.folder / "device-plugins"

    @property
    def socket(self) -> Path:
        """Where plugins register; a kubelet that starts makes it anew."""
        return self.plugins / "kubelet.sock"

    def life(self) -> tuple[int, int] | None:
        """Return what differs whenever the kubelet has started again; None without one."""
        try:
            seen = self.socket.stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns

    async def register(self, endpoint: str, resource: str, options: object) -> None:
        """Say that a plugin answers for a resource; raises ``grpc.RpcError``."""
        request = PLUGIN["RegisterRequest"](
            version=messages.VERSION,
            endpoint=endpoint,
            resource_name=resource,
            options=options,
        )
        await _asked(self.socket, messages.REGISTER, request, PLUGIN["Empty"])

    async def holders(self) -> dict[tuple[str, str], dict[str, set[str]]]:
        """Return the units that each pod holds, by resource; raises ``grpc.RpcError``."""
        answer = await _asked(
            self.folder / "pod-resources" / "kubelet.sock",
            messages.LIST_HOLDERS,
            HOLDERS["ListPodResourcesRequest"](),
            HOLDERS["ListPodResourcesResponse"],
        )
        found: dict[tuple[str, str], dict[str, set[str]]] = {}
        for pod in answer.pod_resources:
            held = found.setdefault((pod.namespace, pod.name), {})
            for container in pod.containers:
                for devices in container.devices:
                    held.setdefault(devices.resource_name, set()).update(devices.device_ids)
        return found


async def _asked(path: Path, method: str, request: Any, answer: Any) -> Any:  # noqa: ANN401
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        ask = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await ask(request, timeout=ANSWER_S)
