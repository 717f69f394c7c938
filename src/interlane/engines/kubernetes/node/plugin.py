"""A device plugin: advertises the units of one resource, and hands them to containers.

The kubelet asks in three steps.  Which units would suit: those of the devices that the pod
owns.  Give me these: here is what the container gets with them.  May it start: only if the
kubelet itself says that the units are its pod's.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from interlane.engines.kubernetes.node import messages
from interlane.engines.kubernetes.node.claims import DeviceClaim, DeviceClaims, NotOwned
from interlane.engines.kubernetes.node.kubelet import Kubelet
from interlane.engines.kubernetes.node.messages import PLUGIN
from interlane.engines.kubernetes.node.offers import NodeDevice, units_on

LOOK_S: Final = 1.0
"""Between looks whether the kubelet has started again."""
SOON_S: Final = 0.1
COMES_S: Final = 10.0
"""For which a pod is waited for that the kubelet knows and we do not yet."""

log = logging.getLogger("interlane.engines.kubernetes")

Given = Callable[[DeviceClaim], Any]
"""Returns the ``ContainerAllocateResponse`` of a pod."""


class ResourcePlugin:
    """Answers for one resource; belongs to one event loop."""

    def __init__(
        self, resource: str, devices: Sequence[NodeDevice], book: DeviceClaims, given: Given
    ) -> None:
        self.resource = resource
        self.registered = 0
        """How often a kubelet has taken it up."""
        self._devices = tuple(devices)
        self._book = book
        self._given = given
        self._changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._kubelet: Kubelet

    @property
    def endpoint(self) -> str:
        """The name of its socket."""
        return f"interlane-{self.resource.replace('/', '-')}.sock"

    @property
    def _options(self) -> Any:  # noqa: ANN401 - a message
        return PLUGIN["DevicePluginOptions"](
            pre_start_required=True, get_preferred_allocation_available=True
        )

    def offer(self, devices: Sequence[NodeDevice]) -> None:
        """Offer other devices: what is lost counts as unhealthy."""
        if tuple(devices) != self._devices:
            self._devices = tuple(devices)
            self._changed.set()

    # -- life -------------------------------------------------------------------------

    async def run(self, kubelet: Kubelet) -> None:
        """Serve, and register with every kubelet that comes, until cancelled."""
        self._kubelet = kubelet
        life: tuple[int, int] | None = None
        try:
            while True:
                seen = kubelet.life()
                if seen is not None and (seen != life or not self._path.exists()):
                    life = seen if await self._enter() else None
                await asyncio.sleep(LOOK_S)
        finally:
            await self._leave()

    @property
    def _path(self) -> Path:
        return self._kubelet.plugins / self.endpoint

    async def _enter(self) -> bool:
        """Serve anew and register; tell whether the kubelet took it."""
        await self._leave()
        self._path.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self._server.add_insecure_port(f"unix:{self._path}")
        await self._server.start()
        try:
            await self._kubelet.register(self.endpoint, self.resource, self._options)
        except grpc.RpcError as error:
            log.warning("The kubelet does not take up %s: %s", self.resource, error)
            return False
        log.info("The kubelet counts %s.", self.resource)
        self.registered += 1
        return True

    async def _leave(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def _handlers(self) -> grpc.GenericRpcHandler:
        def unary(call: Any, asks: str) -> grpc.RpcMethodHandler:  # noqa: ANN401
            return grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=PLUGIN[asks].FromString,
                response_serializer=lambda said: said.SerializeToString(),
            )

        return grpc.method_handlers_generic_handler(
            messages.SERVICE,
            {
                "GetDevicePluginOptions": unary(self._tell_options, "Empty"),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list,
                    request_deserializer=PLUGIN["Empty"].FromString,
                    response_serializer=lambda said: said.SerializeToString(),
                ),
                "GetPreferredAllocation": unary(self._prefer, "PreferredAllocationRequest"),
                "Allocate": unary(self._allocate, "AllocateRequest"),
                "PreStartContainer": unary(self._before_start, "PreStartContainerRequest"),
            },
        )

    # -- what the kubelet asks --------------------------------------------------------

    async def _tell_options(self, request: Any, context: object) -> Any:  # noqa: ANN401
        return self._options

    async def _list(self, request: Any, context: object) -> AsyncIterator[Any]:  # noqa: ANN401
        while True:
            yield PLUGIN["ListAndWatchResponse"](
                devices=[
                    PLUGIN["Device"](
                        ID=unit,
                        health=messages.HEALTHY if one.is_there else messages.UNHEALTHY,
                    )
                    for one in self._devices
                    for unit in one.units
                ]
            )
            self._changed.clear()
            await self._changed.wait()

    async def _prefer(self, request: Any, context: object) -> Any:  # noqa: ANN401
        """Name units of the devices that the pod owns; none, if it cannot be told."""
        return PLUGIN["PreferredAllocationResponse"](
            container_responses=[
                PLUGIN["ContainerPreferredAllocationResponse"](
                    deviceIDs=await self._suiting(one)
                )
                for one in request.container_requests
            ]
        )

    async def _suiting(self, asked: Any) -> list[str]:  # noqa: ANN401
        claim = await self._claimed(asked.allocation_size)
        if claim is None:
            return []
        free, kept = asked.available_deviceIDs, asked.must_include_deviceIDs
        return units_on(claim.gpus, claim.each, free, kept) or []

    async def _claimed(self, units: int) -> DeviceClaim | None:
        """Return whose units these will be; a pod that is not known here yet is waited for."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + COMES_S
        while (claim := self._book.next(self.resource, units)) is None:
            if loop.time() > end_s:
                return None
            await asyncio.sleep(SOON_S)
        return claim

    async def _allocate(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        try:
            given = [await self._give(one.devicesIDs) for one in request.container_requests]
        except NotOwned as error:
            log.warning("%s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return PLUGIN["AllocateResponse"](container_responses=given)

    async def _give(self, units: Sequence[str]) -> Any:  # noqa: ANN401
        claim = await self._claimed(len(units))
        if claim is None:
            raise NotOwned(
                f"No pod here was given {len(units)} of {self.resource} by interlane; set "
                "'schedulerName: interlane', or let your scheduler ask interlane's extender."
            )
        self._book.give(claim, units)
        log.info(
            "Pod %s starts on GPU %s.", "/".join(claim.pod), ",".join(map(str, claim.gpus))
        )
        return self._given(claim)

    async def _before_start(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        units = set(request.devicesIDs)
        try:
            held = await self._kubelet.holders()
            pods = [pod for pod, one in held.items() if units <= one.get(self.resource, set())]
            for pod in pods:
                self._book.check(pod, units)
            if not pods:
                raise NotOwned(
                    f"No pod holds {', '.join(sorted(units)[:3])} of {self.resource}."
                )
        except (NotOwned, grpc.RpcError) as error:
            log.warning("%s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return PLUGIN["PreStartContainerResponse"]()
