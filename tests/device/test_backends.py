"""Backends measure and cap the memory of one process; the CPU's in processes of their own."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from interlane.device.backends import backend_of
from interlane.device.backends.cuda import CudaBackend
from interlane.model import InvalidField

MIB = 1 << 20


def told_by(program: str) -> list[Any]:
    """Run a program and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    told: list[Any] = json.loads(done.stdout)
    return told


def test_what_stays_is_live_and_what_passes_is_peak() -> None:
    live, peak, later = told_by("""
import json
from interlane.device.backends.cpu import CpuBackend
backend = CpuBackend()
backend.reset_peak()
kept = bytearray(b"x") * (40 << 20)
passing = bytearray(b"x") * (100 << 20)
del passing
live, peak = backend.live(), backend.peak()
backend.reset_peak()
print(json.dumps([live, peak, backend.peak()]))
""")

    assert live == pytest.approx(40 * MIB, abs=3 * MIB)
    assert peak == pytest.approx(140 * MIB, abs=3 * MIB)
    assert later == pytest.approx(live, abs=3 * MIB)


def test_blocks_that_malloc_keeps_are_given_back_and_not_counted_as_live() -> None:
    live, trimmed = told_by("""
import ctypes, json
from interlane.device.backends.cpu import CpuBackend
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
backend = CpuBackend()
def churn():
    blocks = [libc.malloc(60_000) for _ in range(1000)]
    for block in blocks: ctypes.memset(block, 1, 60_000)
    pin = libc.malloc(60_000)  # above the freed blocks, so that the heap's top cannot fall
    for block in blocks: libc.free(block)
churn()
live = backend.live()
churn()
print(json.dumps([live, backend.trim()]))
""")

    assert live < 3 * MIB
    assert trimmed > 50 * MIB


def test_beyond_its_limit_a_training_step_gets_an_error_and_the_process_goes_on() -> None:
    said, after, lifted = told_by("""
import json, torch
from interlane.device.backends.cpu import CpuBackend
torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
def step(batch):
    model(torch.randn(batch, 256)).square().mean().backward()
    return True
step(1)
backend = CpuBackend()
backend.limit(32 << 20)
step(1_000)
try: step(100_000); said = ""
except RuntimeError as error: said = str(error)
after = step(1_000)
backend.limit(None)
print(json.dumps([said, after, step(100_000)]))
""")

    assert "can't allocate memory" in said
    assert after
    assert lifted


@dataclass
class FakeCuda:
    """The names of ``torch.cuda`` over a ledger of three numbers."""

    allocated: int = 300
    most: int = 900
    reserved: int = 1000
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def memory_allocated(self, device: int) -> int:
        return self.allocated

    def memory_reserved(self, device: int) -> int:
        return self.reserved

    def max_memory_allocated(self, device: int) -> int:
        return self.most

    def reset_peak_memory_stats(self, device: int) -> None:
        self.most = self.allocated

    def empty_cache(self) -> None:
        self.reserved = self.allocated

    def synchronize(self, device: int) -> None:
        self.calls.append(("synchronize", device))

    def mem_get_info(self, device: int) -> tuple[int, int]:
        return 4000, 8000

    def set_per_process_memory_fraction(self, fraction: float, device: int) -> None:
        self.calls.append(("fraction", fraction, device))


def test_the_cuda_backend_reads_the_allocator_and_frees_its_cache() -> None:
    backend = CudaBackend(FakeCuda(), index=1)

    assert (backend.live(), backend.peak()) == (300, 900)
    backend.reset_peak()
    assert backend.peak() == 300
    assert backend.trim() == 700
    assert backend.trim() == 0


def test_the_cuda_backend_fences_and_limits_its_own_device() -> None:
    cuda = FakeCuda()
    backend = CudaBackend(cuda, index=1)

    backend.fence()
    backend.limit(2000)
    backend.limit(None)

    assert cuda.calls == [("synchronize", 1), ("fraction", 0.25, 1), ("fraction", 1.0, 1)]


@pytest.mark.parametrize("device", ["", "gpu", "cpu:1", "cuda:", "cuda:x", "cuda:-1"])
def test_a_device_that_is_none_is_refused(device: str) -> None:
    with pytest.raises(InvalidField, match="it must be cpu, cuda or cuda:N"):
        backend_of(device)
