"""The agent of a node: device plugins, the device daemon, and reports to the scheduler.

It runs once on each node with GPUs.  Pods that share a GPU go on when it is restarted: their
programs find the next daemon, and the kubelet tells who holds what.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import grpc
from aiohttp import web

from interlane.device.exposition import exposed
from interlane.device.inventory import Devices, devices_of
from interlane.device.lanes import Lanes, LaneSettings
from interlane.engines.kubernetes.client import ApiError, KubeClient
from interlane.engines.kubernetes.config import ApiServer
from interlane.engines.kubernetes.informer import Informer
from interlane.engines.kubernetes.node.claims import DeviceClaim, DeviceClaims
from interlane.engines.kubernetes.node.handing import Handing, NodeFolder
from interlane.engines.kubernetes.node.kubelet import Kubelet
from interlane.engines.kubernetes.node.offers import NodeDevice, node_devices
from interlane.engines.kubernetes.node.plugin import ResourcePlugin
from interlane.engines.kubernetes.reports import NodeReport, config_map_of, name_of
from interlane.lanes.report import DaemonReport
from interlane.model import InvalidInput

FOLDER: Final = Path("/var/lib/interlane")
KUBELET: Final = Path("/var/lib/kubelet")
REPORT_EVERY_S: Final = 10.0
LOOK_S: Final = 5.0
"""Between looks for devices that are lost or have come."""
STALE_S: Final = 30.0
"""After which a device daemon that does not answer makes the agent unwell."""

log = logging.getLogger("interlane.engines.kubernetes")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is told."""

    node: str
    namespace: str
    """In which it reports."""
    seal: Path
    """The file with the scheduler's key."""
    devices: str = "auto"
    order: str = "fair"
    sharing: str = "measured"
    folder: Path = FOLDER
    kubelet: Path = KUBELET
    host: str = "0.0.0.0"
    port: int = 9441
    """For metrics and probes; 0 for any."""
    report_every_s: float = REPORT_EVERY_S


class NodeAgent:
    """See the module's text; belongs to one event loop."""

    def __init__(self, settings: AgentSettings, server: ApiServer) -> None:
        self.settings = settings
        self.port = settings.port
        self._folder = NodeFolder(settings.folder)
        self._found = devices_of(settings.devices)
        self._lanes = Lanes(
            LaneSettings(
                self._found.shared,
                self._folder.lanes,
                settings.order,
                settings.sharing,
                everybody=True,
            )
        )
        self._lanes.heard = self._heard
        self._heard_last: tuple[DaemonReport, float] | None = None
        self._book = DeviceClaims(settings.node, _key_in(settings.seal))
        self._plugins = self._made_plugins()
        self._client = KubeClient(server)
        self._pods = Informer(
            self._client,
            "/api/v1/pods",
            self._book.changed,
            {"fieldSelector": f"spec.nodeName={settings.node}"},
        )
        self._told_s: float | None = None

    async def run(self) -> None:
        """Serve the node until told to end."""
        self._folder.path.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._folder.put_code()
        self._lanes.start()
        await self._client.open()
        site = await self._served()
        try:
            await self._work()
        finally:
            await site.cleanup()
            await self._client.close()
            await asyncio.to_thread(self._lanes.close)

    async def _work(self) -> None:
        """Learn who holds what, and then answer the kubelet."""
        kubelet = Kubelet(self.settings.kubelet)
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._pods.run())]
            await _first_of(self._pods.synced.wait(), ended.wait())
            self._book.in_order_of(self._pods.objects.values())
            await self._learn(kubelet)
            tasks += [group.create_task(one.run(kubelet)) for one in self._plugins]
            tasks += [
                group.create_task(self._look()),
                group.create_task(self._report()),
            ]
            await ended.wait()
            for task in tasks:
                task.cancel()

    async def _learn(self, kubelet: Kubelet) -> None:
        """Take up what the kubelet gave out before this agent began."""
        with suppress(grpc.RpcError):  # a kubelet that has not begun has given out nothing
            for pod, held in (await kubelet.holders()).items():
                for plugin in self._plugins:
                    if units := held.get(plugin.resource):
                        self._book.holds(pod, sorted(units))

    # -- devices ----------------------------------------------------------------------

    @property
    def devices(self) -> tuple[NodeDevice, ...]:
        """The node's devices by number."""
        return node_devices(self._found)

    def _made_plugins(self) -> tuple[ResourcePlugin, ...]:
        resources = dict.fromkeys(one.resource for one in self.devices)
        return tuple(
            ResourcePlugin(resource, self._counted(resource), self._book, self._given)
            for resource in resources
        )

    def _counted(self, resource: str) -> Sequence[NodeDevice]:
        return [one for one in self.devices if one.resource == resource]

    def _given(self, claim: DeviceClaim) -> Any:  # noqa: ANN401 - a message
        socket = self._lanes.settings.socket
        return Handing(self._folder, self.devices, socket).given(claim)

    async def _look(self) -> None:
        """Look for devices again and again; one that is lost is offered no more."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                found = await asyncio.to_thread(self._found.again)
            except Exception as error:  # a driver that fails is no reason to look no more
                log.warning("Devices could not be looked for: %s", error)
                continue
            if found is not self._found:
                self._take(found)

    def _take(self, found: Devices) -> None:
        if found.machine.gpus != self._found.machine.gpus:
            # Numbers that pods hold would change their meaning.
            log.warning("Devices have come; they are offered when the agent starts again.")
            return
        self._found = found
        for plugin in self._plugins:
            plugin.offer(self._counted(plugin.resource))

    # -- reports ----------------------------------------------------------------------

    def _heard(self, report: DaemonReport, now_s: float) -> None:
        """Keep what the device daemon says; called by a thread of its own."""
        self._heard_last = report, now_s

    async def _report(self) -> None:
        while True:
            try:
                await self._tell()
                self._told_s = time.monotonic()
            except ApiError as error:
                log.warning("The report of %s was not taken: %s", self.settings.node, error)
            await asyncio.sleep(self.settings.report_every_s)

    async def _tell(self) -> None:
        found = config_map_of(self.now(), self.settings.namespace)
        path = f"/api/v1/namespaces/{self.settings.namespace}/configmaps"
        try:
            await self._client.put(f"{path}/{name_of(self.settings.node)}", found)
        except ApiError as error:
            if not error.is_gone:
                raise
            await self._client.post(path, found)

    def now(self) -> NodeReport:
        """Return what there is to tell."""
        devices = self.devices
        at_place = sorted(devices, key=lambda one: one.place)
        return NodeReport(
            self.settings.node,
            time.time(),
            tuple(one.told for one in devices),
            tuple(one.number for one in at_place),
            None if self._heard_last is None else self._heard_last[0],
        )

    # -- metrics and probes -----------------------------------------------------------

    async def _served(self) -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.get("/healthz", self._health), web.get("/metrics", self._metrics)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, self.settings.host, self.settings.port)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    def unwell(self) -> str | None:
        """Return why the agent does not do its work; None if it does."""
        if not self._pods.synced.is_set():
            return "The pods of this node are not known yet."
        waits = [one.resource for one in self._plugins if not one.registered]
        if waits:
            return f"The kubelet has not taken up {', '.join(waits)}."
        last = self._heard_last
        if last is None or time.monotonic() - last[1] > STALE_S:
            return "The device daemon does not answer."
        return None

    async def _health(self, request: web.Request) -> web.Response:
        why = self.unwell()
        return web.Response(text=why or "well", status=200 if why is None else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        last = self._heard_last
        body = b"" if last is None else exposed(last[0])
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})


def _key_in(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"The scheduler's key cannot be read from {path} ({error.strerror}); mount the "
            "Secret interlane-seal there."
        ) from None


async def _first_of(*awaited: "Awaitable[object]") -> None:
    tasks = [asyncio.ensure_future(one) for one in awaited]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def run_agent(settings: AgentSettings, server: ApiServer) -> None:
    """Serve a node until told to end."""
    namespace = settings.namespace or server.namespace
    await NodeAgent(replace(settings, namespace=namespace), server).run()
