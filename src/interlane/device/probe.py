"""What this machine can do, tried rather than estimated, and which promises follow from it."""

import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from interlane.device.backends.cpu import CpuBackend
from interlane.device.nvml import gpus, installed
from interlane.device.page import make_page

GIB: Final = 1 << 30
_PROC: Final = Path("/proc")
_SYS: Final = Path("/sys")


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """One ability of the machine."""

    name: str
    holds: bool
    here: str
    """What was found."""
    follows: str
    """What that gives, or what is missing without it."""
    is_needed: bool = False
    """Whether nothing can be shared without it."""


def probe() -> list[ProbeFinding]:
    """Try everything that sharing builds on."""
    return [check() for check in CHECKS]


def promises(findings: Sequence[ProbeFinding]) -> dict[str, str]:
    """Return what holds on this machine, by mode of sharing."""
    holds = {finding.name: finding.holds for finding in findings}
    cap = "enforced in each process" if holds["hard cap"] else "accounted only"
    shares = all(finding.holds for finding in findings if finding.is_needed)
    lanes = f"memory {cap}, turns by iteration, faults stay in their process"
    cuda = (
        "memory enforced for what PyTorch allocates, accounted for the rest; turns by "
        "iteration; faults stay in their process"
    )
    host = "memory accounted, turns by request, a bad model restarts its host"
    return {
        "lanes on the CPU": lanes if shares and holds["torch"] else "not possible here",
        "lanes on a GPU": cuda
        if shares and holds["torch"] and holds["gpus"]
        else "no GPU here",
        "model host": host if holds["torch"] else "not possible here",
    }


def _gpus() -> ProbeFinding:
    nvml = installed()
    if nvml is None:
        here = "nvidia-ml-py is not installed: pip install 'interlane[gpu]'"
        return ProbeFinding("gpus", False, here, "CUDA devices are not looked for")
    try:
        found = gpus(nvml)
    except nvml.NVMLError as error:
        return ProbeFinding("gpus", False, f"none: {error}", "only the CPU can be shared")
    named = [
        f"{gpu.name} {gpu.memory_bytes / GIB:.0f} GiB"
        + (f", {gpu.used_bytes / GIB:.1f} GiB in use" if gpu.used_bytes else "")
        + (", MIG" if gpu.mig else "")
        for gpu in found
    ]
    return ProbeFinding(
        "gpus",
        bool(found),
        "; ".join(named) or "none",
        "CUDA lanes: memory is capped by the allocator, in each process for itself",
    )


def _torch() -> ProbeFinding:
    try:
        here, holds = version("torch"), True
    except PackageNotFoundError:
        here, holds = "not installed: pip install 'interlane[share]'", False
    return ProbeFinding("torch", holds, here, "unmodified PyTorch programs take turns")


def _memory() -> ProbeFinding:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = min((physical, *_cgroup_limits()))
    whose = "of the machine" if limit == physical else "of this control group"
    here = f"{limit / GIB:.1f} GiB {whose}"
    return ProbeFinding("memory", True, here, "the most that a CPU device can be given")


def _cgroup_limits(root: Path = _SYS / "fs" / "cgroup") -> Iterator[int]:
    """Return the memory limits of the control groups that this process is in."""
    for line in (_PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        below = path.lstrip("/")
        if controllers == "":
            yield from _number(root / below / "memory.max")
        elif "memory" in controllers.split(","):
            yield from _number(root / "memory" / below / "memory.limit_in_bytes")


def _number(file: Path) -> Iterator[int]:
    try:
        yield int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or "max"
        return


def _cores() -> ProbeFinding:
    mine = sorted(os.sched_getaffinity(0))
    here = f"{len(mine)} of {os.cpu_count()}"
    return ProbeFinding("cores", True, here, "lanes can be given cores of their own")


def _peak() -> ProbeFinding:
    try:
        CpuBackend().reset_peak()
    except OSError as error:
        follows = "peaks count from the job's start: estimates are too high at first"
        return ProbeFinding("peak memory", False, f"clear_refs: {error.strerror}", follows)
    return ProbeFinding(
        "peak memory", True, "the kernel's peak can be reset", "CPU jobs are measured exactly"
    )


_PROOF: Final = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, -1))
try: bytearray(256 << 20)
except MemoryError: print("caught")
"""


def _cap() -> ProbeFinding:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    done = subprocess.run(
        [sys.executable, "-S", "-c", _PROOF], capture_output=True, text=True, check=False
    )
    holds = done.stdout.strip() == "caught"
    limit = "" if hard == resource.RLIM_INFINITY else f", at most {hard / GIB:.1f} GiB"
    return ProbeFinding(
        "hard cap",
        holds,
        f"RLIMIT_DATA is obeyed{limit}" if holds else "RLIMIT_DATA has no effect",
        "a CPU job beyond its memory gets an error of its own"
        if holds
        else "memory of CPU jobs is accounted, not enforced",
    )


def _huge_pages() -> ProbeFinding:
    try:
        text = (_SYS / "kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")
    except OSError:
        text = "[never]"
    mode = text.partition("[")[2].partition("]")[0]
    holds = mode in ("always", "madvise")
    follows = "large tensors leave no holes in the heap" if holds else "steps may be slower"
    return ProbeFinding("huge pages", holds, mode, follows)


def _peer() -> ProbeFinding:
    try:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with near, far:
            near.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except OSError as error:
        return ProbeFinding("peer identity", False, str(error), "no daemon", is_needed=True)
    here = "SOCK_SEQPACKET with SO_PEERCRED"
    return ProbeFinding("peer identity", True, here, "other users are refused", is_needed=True)


def _page() -> ProbeFinding:
    try:
        page, descriptor = make_page()
    except OSError as error:
        return ProbeFinding("shared page", False, str(error), "no daemon", is_needed=True)
    page.close()
    os.close(descriptor)
    follows = "an iteration without hand-over costs no system call"
    return ProbeFinding("shared page", True, "memfd_create with seals", follows, is_needed=True)


def _death() -> ProbeFinding:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return ProbeFinding("pidfd", False, str(error), "no daemon", is_needed=True)
    return ProbeFinding(
        "pidfd", True, "pidfd_open", "the death of a job is seen", is_needed=True
    )


def _priority() -> ProbeFinding:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, before - 1)
    except OSError as error:
        here = f"nice {before} cannot be lowered: {error.strerror}"
        return ProbeFinding(
            "priority", False, here, "hand-overs wait for other programs' turns"
        )
    os.setpriority(os.PRIO_PROCESS, 0, before)
    return ProbeFinding(
        "priority", True, "nice can be lowered", "the daemon is scheduled first"
    )


def _mps() -> ProbeFinding:
    found = shutil.which("nvidia-cuda-mps-control")
    here = found or "nvidia-cuda-mps-control is not on the PATH"
    follows = "lanes overlap on one GPU" if found else "lanes of one GPU take turns in time"
    return ProbeFinding("mps", found is not None, here, follows)


CHECKS: Final[tuple[Callable[[], ProbeFinding], ...]] = (
    _gpus, _mps, _torch, _memory, _cores, _peak, _cap, _huge_pages, _peer, _page, _death,
    _priority,
)  # fmt: skip
"""In the order in which they are printed."""
