"""Answers a scheduler that asks: filter, prioritise, bind.

It is asked only about pods that want a part of a GPU.  What it knows comes from the API server
alone, so that a restart loses nothing.  One runs in a cluster, and not together with our own
scheduler: both would give out the same GPUs.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from interlane.engines.kubernetes.affinity import FitRules
from interlane.engines.kubernetes.binding import Binder
from interlane.engines.kubernetes.claims import Claim, Slot, bound_annotations, claim_on_pod
from interlane.engines.kubernetes.client import KubeClient
from interlane.engines.kubernetes.config import ApiServer
from interlane.engines.kubernetes.dialects import SLICE
from interlane.engines.kubernetes.extender.placing import ExtenderLedger
from interlane.engines.kubernetes.foreign import ForeignPods
from interlane.engines.kubernetes.informer import Informer
from interlane.engines.kubernetes.nodes import sight_of
from interlane.engines.kubernetes.pods import (
    Pod,
    ask_of,
    is_bound,
    is_over,
    job_of,
    name_of,
    without_place,
)
from interlane.kernel.scheduler import Scheduler
from interlane.live.files.job import Origin, request_of
from interlane.live.port import Attempt
from interlane.model import (
    Cluster,
    Demand,
    InterlaneError,
    InvalidInput,
    JobId,
    Machine,
    MachineId,
    Placement,
    Refusal,
    Spot,
)

BEST: Final = 10
"""The highest score that an extender may give."""
WANTED_S: Final = 30.0
"""For which a binding is tried; the other scheduler gives up by then."""

log = logging.getLogger("interlane.engines.kubernetes")


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """What an extender is told."""

    seal: Path
    """The file with the key that agents know."""
    host: str = "0.0.0.0"
    port: int = 7412


class Extender:
    """See the module's text; belongs to one event loop."""

    def __init__(
        self,
        client: KubeClient,
        key: bytes,
        make_scheduler: Callable[[Cluster], Scheduler],
    ) -> None:
        self.ledger = ExtenderLedger(make_scheduler(Cluster("kubernetes", ())))
        self._client = client
        self._key = key
        self._foreign = ForeignPods()
        self._machines: dict[MachineId, Machine] = {}
        self._ours: dict[str, Slot] = {}
        """Where pods are that we bound, by uid."""
        self._binder = Binder(client, lambda: True)
        self.nodes = Informer(client, "/api/v1/nodes", self._node)
        self.pods = Informer(client, "/api/v1/pods", self._pod)

    # -- what there is ----------------------------------------------------------------

    async def follow(self) -> None:
        """Know the cluster from now on; nodes come first, because pods hold parts of them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run())
            await self.nodes.synced.wait()
            group.create_task(self.pods.run())

    @property
    def is_ready(self) -> bool:
        """Whether everything is known."""
        return self.nodes.synced.is_set() and self.pods.synced.is_set()

    def _node(self, before: Pod | None, now: Pod | None) -> None:
        name = MachineId((now or before or {})["metadata"]["name"])
        if now is None:
            self._machines.pop(name, None)
            self.ledger.lose(name)
            return
        try:
            sight = sight_of(now, {})
        except InterlaneError as error:
            log.warning("Node %s is not used: %s", name, error)
            self.ledger.lose(name)
            return
        self._machines[name] = sight.machine
        self.ledger.see(sight.machine, drained=sight.drained)
        for pod in list(self.pods.objects.values()):
            if pod["spec"].get("nodeName") == name:
                self._pod(None, pod)
        self._count_foreign(name)

    def _pod(self, before: Pod | None, now: Pod | None) -> None:
        pod = now or before
        assert pod is not None
        uid = pod["metadata"]["uid"]
        if now is None or is_over(now):
            self.ledger.release(uid)
            self._ours.pop(uid, None)
            node = self._foreign.remove(uid)
            if node is not None:
                self._count_foreign(MachineId(node))
        elif is_bound(now) and now["spec"]["nodeName"] in self._machines:
            try:
                self._bound(uid, now)
            except InterlaneError as error:
                log.warning("Pod %s is not counted: %s", now["metadata"]["name"], error)

    def _bound(self, uid: str, pod: Pod) -> None:
        claim = claim_on_pod(self._key, pod)
        if claim is not None and claim.slot is not None:
            self._ours[uid] = claim.slot
            self.ledger.hold(uid, self._demand(pod), Placement((claim.slot.spot,)))
        elif self._foreign.add(uid, pod):
            self._count_foreign(MachineId(pod["spec"]["nodeName"]))

    def _count_foreign(self, name: MachineId) -> None:
        machine = self._machines.get(name)
        if machine is not None and name in self._foreign.nodes:
            ours = {gpu for one in self._ours.values() if one.node == name for gpu in one.gpus}
            self.ledger.occupy(self._foreign.occupied(machine, ours))

    def _demand(self, pod: Pod) -> Demand:
        """Return what a pod asks for; raises what is wrong with it."""
        ask = without_place(ask_of(pod, FitRules(), ()))
        spec = job_of([(pod, ask)], pod["metadata"]["name"])
        machines = tuple(self._machines.values())
        (task,) = request_of(spec, Cluster("kubernetes", machines)).tasks
        return task.demand

    # -- what is asked ----------------------------------------------------------------

    def filter(self, pod: Pod, names: list[str]) -> dict[str, Any]:
        """Say which of the nodes will do, and why others will not."""
        try:
            demand = self._demand(pod)
            fits, why = self.ledger.fitting(demand, names), _why(demand)
        except InterlaneError as error:
            fits, why = set(), str(error)
        return {
            "NodeNames": [name for name in names if name in fits],
            "FailedNodes": {name: why for name in names if name not in fits},
            "Error": "",
        }

    def prioritise(self, pod: Pod, names: list[str]) -> list[dict[str, Any]]:
        """Give the node that our placer would choose the highest score."""
        try:
            placed = self.ledger.place(self._demand(pod), names)
        except InterlaneError:
            return [{"Host": name, "Score": 0} for name in names]
        best = None if isinstance(placed, Refusal) else placed.spots[0].machine
        return [{"Host": name, "Score": BEST * (name == best)} for name in names]

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Choose the GPU on a node, and bind; return why not, or nothing."""
        pod = await self._client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        if pod["metadata"]["uid"] != uid:
            return f"Pod {namespace}/{name} is another one by now."
        try:
            demand = self._demand(pod)
            placed = self.ledger.place(demand, [node])
        except InterlaneError as error:
            return str(error)
        if isinstance(placed, Refusal):
            return f"{placed.reason} {placed.remedy}"
        (spot,) = placed.spots
        self.ledger.hold(uid, demand, placed)
        end_s = time.monotonic() + WANTED_S
        why = await self._binder.bind(
            name_of(pod),
            node,
            self._written(pod, demand, spot),
            lambda: time.monotonic() < end_s,
        )
        if why is not None:
            self.ledger.release(uid)
        return why or ""

    def _written(self, pod: Pod, demand: Demand, spot: Spot) -> dict[str, str]:
        name = name_of(pod)
        claim = Claim(
            Attempt(JobId(f"{name.namespace}/{name.name}"), 1, name.uid),
            Origin(0, name.namespace, time.time(), None),
            time.time(),
            1,
            Slot(spot.machine, spot.gpus, 0, 0),
        )
        kinds = [one.removeprefix(SLICE) for one in demand.gpu_types if one.startswith(SLICE)]
        return bound_annotations(
            self._key,
            name,
            claim,
            gpu_milli=demand.gpu_milli,
            gpu_memory_mib=demand.gpu_memory_mib,
            profile=kinds[0] if kinds else "",
        )


def _why(demand: Demand) -> str:
    return (
        f"interlane finds no {demand.gpus} GPUs there with {demand.gpu_milli} thousandths of "
        "each free."
    )


# -- over HTTP ------------------------------------------------------------------------


def routes_of(extender: Extender) -> list[web.RouteDef]:
    """Return what the other scheduler calls."""

    async def filtered(request: web.Request) -> web.Response:
        said = _lowered(await request.json())
        return web.json_response(extender.filter(said["pod"], _names(said)))

    async def prioritised(request: web.Request) -> web.Response:
        said = _lowered(await request.json())
        return web.json_response(extender.prioritise(said["pod"], _names(said)))

    async def bound(request: web.Request) -> web.Response:
        said = _lowered(await request.json())
        words = (said["podnamespace"], said["podname"], said["poduid"], said["node"])
        try:
            why = await extender.bind(*words)
        except InterlaneError as error:
            why = str(error)
        return web.json_response({"Error": why})

    async def health(request: web.Request) -> web.Response:
        return web.Response(status=200 if extender.is_ready else 503)

    return [
        web.post("/filter", filtered),
        web.post("/prioritize", prioritised),
        web.post("/bind", bound),
        web.get("/healthz", health),
    ]


def _lowered(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was said by names in small letters: versions spell them differently."""
    return {name.lower(): value for name, value in said.items()}


def _names(said: Mapping[str, Any]) -> list[str]:
    names = said.get("nodenames")
    if names is not None:
        return list(names)
    listed = (said.get("nodes") or {}).get("items") or ()
    return [one["metadata"]["name"] for one in listed]


async def run_extender(
    settings: ExtenderSettings,
    server: ApiServer,
    make_scheduler: Callable[[Cluster], Scheduler],
    ready: Callable[[str], None],
) -> None:
    """Answer until told to end."""
    try:
        key = settings.seal.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"The key cannot be read from {settings.seal} ({error.strerror}); mount the Secret "
            "interlane-seal there."
        ) from None
    client = KubeClient(server)
    await client.open()
    extender = Extender(client, key, make_scheduler)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    follows = asyncio.create_task(extender.follow())
    app = web.Application(client_max_size=64 << 20)
    app.add_routes(routes_of(extender))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await extender.nodes.synced.wait()
        await extender.pods.synced.wait()
        await web.TCPSite(runner, settings.host, settings.port).start()
        host, port = runner.addresses[0][:2]
        ready(f"http://{host}:{port}")
        await ended.wait()
    finally:
        follows.cancel()
        await runner.cleanup()
        await client.close()
