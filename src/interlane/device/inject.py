"""What a job does right after it has imported torch: ask for its place, and be gated.

A process that was started or forked by a job that shares already (a loader of data, a compiler)
does nothing of the kind, unless it trains: then it is a job of its own.
"""

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Final, NoReturn

from interlane.device.attach import place, present
from interlane.device.backends import Backend, backend_of
from interlane.device.client import DeviceClient
from interlane.device.lane_request import REQUEST_VARIABLE, LaneRequest, request_in
from interlane.device.link import NoDaemon
from interlane.device.memory import is_out_of_memory
from interlane.device.ranks import ranks_in, watch_groups
from interlane.device.talk import say
from interlane.device.torch_hooks import TorchHooks
from interlane.model.errors import InterlaneError, InvalidInput, Rejected

ATTACHED_VARIABLE: Final = "INTERLANE_SHARE_ATTACHED"
PACKAGE: Final = Path(__file__).resolve().parents[1]
HOOKS: Final = Path("device", "hooks")
"""What goes in front of a program's path, inside our package."""
BAD_INPUT: Final = 2
UNREACHABLE: Final = 3
NEVER_PLACED: Final = 7


def with_hooks(environment: Mapping[str, str], package: Path = PACKAGE) -> dict[str, str]:
    """Return an environment in which Python programs gate themselves by our code there."""
    before = environment.get("PYTHONPATH")
    paths = [str(package / HOOKS), *([before] if before else [])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def share(torch: ModuleType) -> None:
    """Gate what this process does with torch."""
    is_child = ATTACHED_VARIABLE in os.environ
    attach = partial(_attached, _memory_from_here() if is_child else backend_of)
    hooks = TorchHooks(torch, None if is_child else attach(), attach)
    os.register_at_fork(after_in_child=hooks.orphan)
    watch_groups(torch, _refuse_ranks)


def _memory_from_here() -> Callable[[str], Backend]:
    """Count what the process holds beyond the present as its own, whenever it attaches."""
    on_cpu = backend_of("cpu")
    return lambda device: on_cpu if device == "cpu" else backend_of(device)


def _attached(backend: Callable[[str], Backend]) -> DeviceClient:
    """Take the place that the environment describes, or end: nobody may run ungated."""
    try:
        client = present() or place(_request(), backend=backend)
    except InterlaneError as error:
        _end(error)
    os.environ[ATTACHED_VARIABLE] = str(os.getpid())
    _tell_of_overruns(client)
    atexit.register(_leave, client, os.getpid())
    return client


def _request() -> LaneRequest:
    if ranks_in(os.environ) > 1:
        raise _several_ranks(ranks_in(os.environ))
    found = request_in(os.environ)
    assert found is not None, f"whoever injects this sets {REQUEST_VARIABLE}"
    return found


def _several_ranks(ranks: int) -> InvalidInput:
    return InvalidInput(
        f"the job has {ranks} ranks, but ranks that take turns would wait for each other for "
        "ever; start the whole job with 'interlane share run --whole'."
    )


def _refuse_ranks(ranks: int) -> NoReturn:
    _end(_several_ranks(ranks))


def _end(error: InterlaneError) -> NoReturn:
    """Say why and exit at once: a script that catches every exception must not go on."""
    codes = {NoDaemon: UNREACHABLE, Rejected: NEVER_PLACED, InvalidInput: BAD_INPUT}
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    say(f"error: {error}")
    os._exit(codes.get(type(error), 1))


def _tell_of_overruns(client: DeviceClient) -> None:
    """Let the daemon know when the job ends because its memory did not suffice."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        client.failed = True
        if is_out_of_memory(error):
            client.overran()
        before(kind, error, at)

    sys.excepthook = hook


def _leave(client: DeviceClient, pid: int) -> None:
    if os.getpid() == pid:
        client.leave()  # not a goodbye: what it holds is gone with the process, and no sooner
