"""Kubernetes behind the engine port: a thread with an event loop that speaks to the API server.

``core`` has what is known and done; here is what other threads may call.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import uvloop

from interlane.engines.kubernetes.client import ApiError, KubeClient
from interlane.engines.kubernetes.config import ApiServer
from interlane.engines.kubernetes.core import Core
from interlane.engines.kubernetes.lease import LEASE_S, Leadership
from interlane.engines.kubernetes.manifests import CONTAINER, PodSettings
from interlane.engines.kubernetes.site import ClusterState
from interlane.live.files.job import JobSpec
from interlane.live.port import (
    Attempt,
    Displaced,
    Launch,
    NeverGrew,
    Observation,
    Output,
    Stop,
    Tell,
    Traits,
)
from interlane.model import InterlaneError

NAME: Final = "kubernetes"
LEASE: Final = "interlane"
BATCH_MAX: Final = 16
"""Items that are decided on together: what a pod waits for is the cycle that it is in."""
SWITCH_S: Final = 0.0005
"""Seconds after which threads take turns.  With what Python does by itself, every packet that
this thread sends or receives waits for ten times as long while the scheduler decides."""
ANSWER_S: Final = 60.0
CLOSE_S: Final = 10.0
RELEASE_S: Final = 3.0
"""Seconds in which the lease is given back; else others wait until it is over."""
KEEP_S: Final = 3_600.0

Answer = TypeVar("Answer")

log = logging.getLogger("interlane.engines.kubernetes")


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """How the engine works on a cluster."""

    pods: PodSettings = field(default_factory=PodSettings)
    identity: str | None = None
    """Who we are among servers of one cluster; None to lead without asking."""
    lease_s: float = LEASE_S
    keep_s: float = KEEP_S


class KubernetesEngine:
    """Runs jobs as pods; see ``live.port.Engine``."""

    def __init__(self, server: ApiServer, settings: KubeSettings | None = None) -> None:
        self.traits = Traits(
            NAME,
            server.url.partition("://")[2],
            keeps_record=True,
            spans_machines=True,
            grows=False,
            batch_max=BATCH_MAX,
        )
        self.settings = settings or KubeSettings()
        self._server = server
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)
        self._client: KubeClient
        self._core: Core | None = None
        self._leadership: Leadership | None = None
        self._keeping: Future[None] | None = None

    @property
    def core(self) -> Core:
        """What is known and done; only for the event loop, and for whoever measures."""
        assert self._core is not None, "start() comes first"
        return self._core

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way that was asked."""
        return self._core is None or self._core.is_idle

    @property
    def leads(self) -> bool:
        """Whether this server may write."""
        return self._leadership is None or self._leadership.may_write

    def lead(self, waits: Callable[[str], None] = lambda holder: None) -> None:
        """Wait until no other server leads; ``start`` does so, too, but says nothing."""
        self._begin_thread()
        if self.settings.identity is None or self._leadership is not None:
            return
        self._leadership = Leadership(
            self._client,
            self.settings.pods.own_namespace,
            LEASE,
            self.settings.identity,
            self.settings.lease_s,
            lost=self._lost,
        )
        self._ask(self._leadership.acquire(waits), None)
        self._keeping = asyncio.run_coroutine_threadsafe(self._leadership.keep(), self._loop)

    def _lost(self, why: str) -> None:
        """Let the server end: whoever leads now decides."""
        if self._core is not None:
            self._core.site.tell(Displaced(why))

    def start(self, tell: Tell) -> None:
        """See the cluster, take up what runs there, and begin to report."""
        self.lead()
        site = ClusterState(
            self._client, self.settings.pods, tell, self._leadership, self.settings.keep_s
        )
        self._core = Core(site)
        self._ask(self._open(self._core), None)

    async def _open(self, core: Core) -> None:
        """See everything, for as long as that takes, unless another server leads meanwhile."""
        opening = asyncio.ensure_future(core.open())
        waited: set[asyncio.Future[Any]] = {opening}
        if self._leadership is not None:
            waited.add(asyncio.ensure_future(self._leadership.is_over.wait()))
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise InterlaneError(
                    "This server lost its lease before it had seen all of the cluster; start "
                    "it again."
                )
            opening.result()
        finally:
            for one in waited:
                one.cancel()

    def close(self) -> None:
        """Stop reporting, and let another server lead; what runs goes on."""
        if not self._thread.is_alive():
            return
        self._ask(self._end(), CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)

    async def _end(self) -> None:
        if self._core is not None:
            await self._core.close()
        if self._keeping is not None:
            self._keeping.cancel()
        if self._leadership is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self._leadership.release()
        await self._client.close()

    def check(self, job: JobSpec, user: str, *, is_admin: bool = False) -> None:
        """Refuse jobs of which no pod could be made."""
        self.settings.pods.check(job)

    def observe(self, known: Collection[Attempt]) -> Observation:
        """Return everything as it is."""
        return self._ask(self._observe(known), ANSWER_S)

    async def _observe(self, known: Collection[Attempt]) -> Observation:
        return self.core.observing.observe(known)

    def begin(self, launch: Launch) -> None:
        """Make and bind the pods of an attempt, soon."""
        self._soon(self.core.begin, launch)

    def grow(self, launch: Launch) -> None:
        """Refuse: pods that run would not know of the others."""
        why = "Jobs on Kubernetes do not grow."
        self._soon(lambda: self.core.site.tell(NeverGrew(launch.attempt, launch.growth, why)))

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """End the pods of an attempt, soon."""
        self._soon(self.core.stop, attempt, how)

    def explain(self, key: str, said: str) -> None:
        """Say on the pods of a job why they wait."""
        self._soon(self.core.observing.explain, key, said)

    def explain_gangs(self) -> None:
        """Say on pods of gangs that are not complete what is missing."""
        self._soon(self.core.observing.explain_gangs)

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Say on pods why they are not scheduled; one that fits no node waits for others."""
        self._soon(partial(self.core.discard, key, was_cancelled=was_cancelled, why=why))

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Return what the first pod of an attempt printed."""
        return self._ask(self._output(attempt, begin, size), ANSWER_S)

    async def _output(self, attempt: Attempt, begin: int, size: int) -> Output:
        pod = self.core.observing.first_pod(attempt)
        if pod is None:
            return Output(max(0, begin), b"")
        try:
            data = await self._client.text(f"{pod.path}/log", container=CONTAINER)
        except ApiError as error:
            log.debug("%s has no log: %s", pod, error)
            return Output(max(0, begin), b"")
        first = max(0, len(data) + begin if begin < 0 else begin)
        return Output(first, data[first : first + size])

    # -- the thread -------------------------------------------------------------------

    def _begin_thread(self) -> None:
        if not self._thread.is_alive():
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
            self._thread.start()
            self._client = KubeClient(self._server, self.settings.lease_s / 3)
            self._ask(self._client.open(), ANSWER_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _soon(self, call: Callable[..., None], *args: object) -> None:
        self._loop.call_soon_threadsafe(call, *args)

    def _ask(self, work: "Coroutine[Any, Any, Answer]", timeout_s: float | None) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)
