"""What a process gets from its parent, as a message to a fork server."""

import json
import os
import resource
import signal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

LENGTH: Final = struct.Struct("!I")
"""Before a request its length, with the standard streams; before all else the job's pid."""
STATUS: Final = struct.Struct("!i")
"""The exit code, or minus the signal that ended the job."""
GROUP_VARIABLE: Final = "INTERLANE_GROUP"
"""Marks the processes of a job that a server has started."""
MOST_BYTES: Final = 8 << 20
"""Of the longest request: the kernel allows about as much for arguments and environment."""

_START_UP: Final = (
    "PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_", "LD_", "LC_",
    "LANG", "TORCH", "PYTORCH", "CUDA_", "NVIDIA_", "VIRTUAL_ENV", "THP_",
)  # fmt: skip
"""How names of variables begin that are read before a fork could change them."""
_LIMITS: Final = tuple(
    getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
)
_IGNORABLE: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A command, and what its process would have got from its parent."""

    script: str
    """A file, or the name of a module."""
    is_module: bool
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    umask: int
    nice: int
    cores: tuple[int, ...]
    limits: tuple[tuple[int, int, int], ...]
    """Number, soft and hard limit of each resource."""
    ignored: tuple[int, ...]
    """Signals that the parent ignores, and so the child."""

    @property
    def message(self) -> bytes:
        """The request as it is sent, without the streams."""
        return json.dumps(asdict(self)).encode()


def request_of(argv: Sequence[str], environment: Mapping[str, str]) -> ForkRequest | None:
    """Return the request for a command, or None if it must be started cold.

    A fork belongs to whoever started the fork server.  What runs in the group of a job must
    stay there, and must not end with the job that happened to start the fork server.
    """
    if GROUP_VARIABLE in environment:
        return None
    words = list(argv[1:])
    is_module = words[:1] == ["-m"]
    if is_module:
        words.pop(0)
    if not words or words[0].startswith("-") or _depends_on_folder(environment):
        return None
    script = Path(words[0])
    if not is_module and (script.suffix != ".py" or not script.is_file()):
        return None
    return ForkRequest(
        words[0],
        is_module,
        tuple(words[1:]),
        dict(environment),
        str(Path.cwd()),
        _umask(),
        os.getpriority(os.PRIO_PROCESS, 0),
        tuple(os.sched_getaffinity(0)),
        tuple((which, *resource.getrlimit(which)) for which in _LIMITS),
        tuple(one for one in _IGNORABLE if signal.getsignal(one) is signal.SIG_IGN),
    )


def read_request(text: bytes) -> ForkRequest:
    """Return the request in a message; raises ``ValueError`` for anything else."""
    try:
        fields: dict[str, Any] = json.loads(text)
        request = ForkRequest(**fields)
        limits = tuple((int(one), int(soft), int(hard)) for one, soft, hard in request.limits)
        return ForkRequest(
            str(request.script),
            bool(request.is_module),
            tuple(map(str, request.arguments)),
            {str(name): str(value) for name, value in request.environment.items()},
            str(request.folder),
            int(request.umask),
            int(request.nice),
            tuple(map(int, request.cores)),
            limits,
            tuple(map(int, request.ignored)),
        )
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a request: {error}") from None


def socket_of(folder: Path, executable: str, environment: Mapping[str, str]) -> Path:
    """Return where the fork server listens from which such a process can be forked."""
    start_up = sorted(
        (name, value) for name, value in environment.items() if name.startswith(_START_UP)
    )
    key = sha256(json.dumps([executable, start_up]).encode()).hexdigest()[:12]
    return folder / f"zygote-{key}.sock"


def _depends_on_folder(environment: Mapping[str, str]) -> bool:
    """Tell whether modules are found from where the caller stands, not the fork server."""
    roots = environment.get("PYTHONPATH", "/").split(os.pathsep)
    return not all(os.path.isabs(root) for root in roots)  # noqa: PTH117 - "" is not


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
