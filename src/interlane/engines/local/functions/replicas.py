"""Replicas of functions in processes of this machine: ``live.functions.port.Replicas``.

A replica speaks over a socket pair.  Which calls it has begun stands in a page of memory that
both sides see, so that it is known even of one that was killed.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from interlane.device.inventory import Devices
from interlane.engines.local.accounts import Accounts
from interlane.engines.local.functions.fork_server import own_pages
from interlane.engines.local.functions.fork_servers import (
    ForkServerNeeds,
    ForkServers,
    ReplicaProcess,
)
from interlane.engines.local.functions.replica import ReplicaOrder, shared_numbers
from interlane.engines.local.functions.wire import (
    SLACK_BYTES,
    Reader,
    ReplicaFrame,
    ReplicaFrameKind,
    Status,
    packed,
)
from interlane.engines.local.groups import AttemptGroups, GroupLimits
from interlane.engines.local.launch import JobBounds, Secrets
from interlane.live.files.function import ANSWER_MIB_MAX, FunctionSpec, terms_of
from interlane.live.functions.calls import CallOutcome, Reply
from interlane.live.functions.port import (
    Answered,
    CutOff,
    Ready,
    ReplicaEnded,
    ReplicaFailed,
    ReplicaReport,
    Tell,
)
from interlane.model import GpuRef, InterlaneError, InvalidField

LAST_WORDS_S: Final = 0.1
"""Seconds after the end of a process in which what it said last is heard."""
PRINTED_BYTES: Final = 1 << 16
ANSWERS_BYTES: Final = ANSWER_MIB_MAX << 20

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_OUTCOMES: Final[Mapping[int, CallOutcome]] = {
    Status.GOOD: CallOutcome.GOOD,
    Status.RAISED: CallOutcome.RAISED,
    Status.NOT_JSON: CallOutcome.NOT_JSON,
}


class NoSuchGpu(InterlaneError):
    """A GPU was lost, or was never there."""


class LocalReplicas:
    """Runs replicas in forks of processes that have imported what they need."""

    def __init__(
        self,
        secrets: Secrets,
        devices: Callable[[], Devices],
        accounts: Accounts | None = None,
        groups: AttemptGroups | None = None,
        bounds: JobBounds | None = None,
    ) -> None:
        self.secrets = secrets
        self._accounts = accounts or Accounts()
        self.devices = devices
        """Returns the devices as they are now."""
        processes = (bounds or JobBounds()).processes
        self.fork_servers = ForkServers(groups, GroupLimits(processes=processes))
        self._open: set[LocalEnvironment] = set()

    def check(self, spec: FunctionSpec, user: str, *, is_admin: bool = False) -> None:
        """Refuse a folder that is not there, secrets without a value, and users of root."""
        self._accounts.check_function(is_admin=is_admin)
        if spec.path is not None and not Path(spec.path).is_dir():
            raise InvalidField("path", spec.path, "it must be a folder of the server's machine")
        self.secrets.check(spec.secrets, user)

    def open(
        self, spec: FunctionSpec, user: str, printed: Callable[[bytes], None]
    ) -> "LocalEnvironment":
        """Start the fork server that replicas need, unless it is there."""
        environment = LocalEnvironment(self, spec, user, printed)
        self._open.add(environment)
        self.fork_servers.prepare(environment.needs)
        return environment

    def release(self, environment: "LocalEnvironment") -> None:
        """End fork servers that nobody needs any more."""
        self._open.discard(environment)
        self.fork_servers.keep_only({one.needs for one in self._open})

    def close(self) -> None:
        """End all fork servers, and with them all replicas."""
        self.fork_servers.close()


class LocalEnvironment:
    """A fork server that may serve other functions too, and a pipe to print into."""

    def __init__(
        self,
        owner: LocalReplicas,
        spec: FunctionSpec,
        user: str,
        printed: Callable[[bytes], None],
    ) -> None:
        env = tuple(sorted(spec.env.items()))
        self.needs = ForkServerNeeds(user, tuple(spec.preload), env)
        self._owner = owner
        self._spec = spec
        self._user = user
        self._memory_bytes = terms_of(spec).memory_mib << 20
        self._answer_bytes = terms_of(spec).answer_mib << 20
        self._heard, self._output = os.pipe2(os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(
            self._heard, lambda: printed(os.read(self._heard, PRINTED_BYTES))
        )

    def load(self, number: int, gpu: GpuRef, tell: Tell) -> "LocalReplica":
        """Have a replica forked."""
        loop = asyncio.get_running_loop()
        answers_bytes = ANSWERS_BYTES if self._spec.batch.max > 1 else self._answer_bytes
        replica = LocalReplica(tell, answers_bytes, is_capped=self._owner.devices().emulated)
        ours, theirs = socket.socketpair()
        page = os.memfd_create("begun")
        with theirs:
            try:
                replica.begun = shared_numbers(page, self._spec.concurrency)
                replica.process = self._fork(
                    number, gpu, (theirs.fileno(), self._output, page), replica.ended
                )
            except (InterlaneError, OSError) as error:
                ours.close()
                loop.call_soon(tell, ReplicaEnded(str(error)))
                return replica
            finally:
                os.close(page)
        ours.setblocking(False)
        loop.create_task(
            loop.create_unix_connection(lambda: replica, sock=ours)
        ).add_done_callback(lambda task: task.exception())
        return replica

    def _fork(
        self,
        number: int,
        gpu: GpuRef,
        fds: tuple[int, int, int],
        on_end: Callable[[str], None],
    ) -> ReplicaProcess:
        devices, spec = self._owner.devices(), self._spec
        if gpu not in devices.gpus:
            raise NoSuchGpu(f"There is no GPU {gpu} any more.")
        device = gpu.index
        own = {
            "INTERLANE_FUNCTION": spec.name,
            "INTERLANE_DEVICES": str(device),
            "CUDA_VISIBLE_DEVICES": devices.visible([device]),
        }
        order = ReplicaOrder(
            spec.handler,
            spec.load,
            spec.path,
            spec.concurrency,
            spec.batch.max > 1,
            self._answer_bytes,
            ANSWERS_BYTES,
            self._owner.secrets.values(spec.secrets, self._user) | own,
        )
        cores = devices.shared[device].cores if devices.emulated else ()
        return self._owner.fork_servers.fork(
            self.needs,
            number,
            order,
            memory_bytes=self._memory_bytes if devices.emulated else None,
            cores=tuple(sorted(cores)),
            fds=fds,
            on_end=on_end,
        )

    def close(self) -> None:
        """Close the pipe, and let the fork server go unless others need it."""
        asyncio.get_running_loop().remove_reader(self._heard)
        os.close(self._heard)
        os.close(self._output)
        self._owner.release(self)


class LocalReplica(asyncio.Protocol):
    """One process, and the line to it."""

    def __init__(self, tell: Tell, answers_bytes: int, *, is_capped: bool) -> None:
        self.process: ReplicaProcess | None = None
        self.begun = memoryview(b"")
        """Numbers of the calls that it began with last, one place for each of its threads."""
        self._tell = tell
        self._is_capped = is_capped
        """Whether its memory is the machine's, and so can be watched."""
        self._reader = Reader(answers_bytes + SLACK_BYTES)
        self._line: asyncio.WriteTransport | None = None
        self._is_cut_off = False
        self._why: str | None = None
        """Why its process has ended."""

    # -- what the gateway asks --------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """Its process, once it is there."""
        return None if self.process is None else self.process.pid

    def send(self, number: int, bodies: Sequence[bytes]) -> None:
        """Send a call."""
        assert self._line is not None, "it has not said that it is ready"
        self._line.write(
            packed(ReplicaFrameKind.CALL, number, [(Status.GOOD, one) for one in bodies])
        )

    def memory_mib(self) -> float | None:
        """Return what it has taken beyond its fork server's; a GPU's memory is not seen."""
        if not self._is_capped or self.process is None or self.process.pid is None:
            return None
        try:
            pages = own_pages(self.process.pid) - self.process.inherited_pages
        except (OSError, ValueError):
            return None  # it has ended
        return max(0, pages) * _PAGE_BYTES / (1 << 20)

    def kill(self) -> None:
        """End the process; its end is heard of later."""
        if self.process is not None:
            self.process.kill()

    # -- what it says -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the line."""
        self._line = cast("asyncio.WriteTransport", transport)  # uvloop's are no subclass

    def data_received(self, data: bytes) -> None:
        """Hear answers; who talks nonsense is of no use."""
        reports: Sequence[ReplicaReport]
        try:
            reports = [_report(frame) for frame in self._reader.take(data)]
        except (ValueError, LookupError):
            reports = [ReplicaFailed("It wrote to the gateway's line.")]
        for report in reports:
            self._tell(report)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that nothing more will be answered."""
        self._is_cut_off = True
        self.kill()  # one that has only closed its line is of no use either
        self._tell(CutOff(frozenset(self.begun)))
        if self._why is not None:
            self._tell(ReplicaEnded(self._why))

    def ended(self, why: str) -> None:
        """Tell of the end of the process, once its last words have been heard."""
        self._why = why
        if self._is_cut_off:
            self._tell(ReplicaEnded(why))
        else:
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self._hear_no_more)

    def _hear_no_more(self) -> None:
        """Close a line that somebody else still holds."""
        if self._is_cut_off:
            return
        if self._line is None:
            self.connection_lost(None)
        else:
            self._line.abort()


def _report(frame: ReplicaFrame) -> ReplicaReport:
    if frame.kind == ReplicaFrameKind.ANSWER:
        replies = [Reply(_OUTCOMES[item.status], item.data) for item in frame.items]
        return Answered(frame.number, replies)
    if frame.kind == ReplicaFrameKind.READY:
        return Ready()
    return ReplicaFailed(frame.items[0].data.decode(errors="replace"))
