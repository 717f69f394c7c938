"""How long it takes to say where a function goes, and to learn all tables of slowdown."""

import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from interlane.functions.events import Held
from interlane.functions.ledger import DeviceLedger, PlacedReplica
from interlane.model import JobId, Machine, MachineId, Refusal, Workload, WorkloadKind
from interlane.model.function import Function
from interlane.policy.colocate.catalogue import COLOCATORS, make_colocator
from interlane.policy.colocate.interference import InterferenceModel, SlowdownTarget
from interlane.policy.colocate.place import Colocator
from interlane.predict.slowdown.models import LEAST_PAIRS, SlowdownEstimate
from interlane.predict.slowdown.pairs import Profiles
from interlane.predict.slowdown.store import trained
from interlane.predict.slowdown.table import CellBasis, SlowdownTable
from interlane.sim.coruns import pairs_by_way
from interlane.traces.colocation import FOLDERS, read
from interlane.traces.data import data_dir

WORKLOADS = 60
MEMORY_MIB = 24 * 1024
RUNS = 3


def measure(*, quick: bool) -> dict[str, Any]:
    """Place functions on GPUs that are half full of them."""
    result: dict[str, Any] = {}
    for gpus in (8, 1_024) if quick else (8, 1_024, 10_000):
        for name in COLOCATORS:
            # The same decisions again and again: the best of each is what it takes.
            times_s = np.min(
                [_once(gpus, 500 if quick else 5_000, name) for _ in range(RUNS)], 0
            )
            result[f"{name}_{gpus}_p50_ms"] = _ms(times_s, 0.5)
            result[f"{name}_{gpus}_p99_ms"] = _ms(times_s, 0.99)
    data = data_dir(None)
    if data is not None and not quick:
        spent = {name: _training_s(data / folder) for name, folder in FOLDERS.items()}
        result["tables_cpu_s_by_set"] = {name: round(one, 1) for name, one in spent.items()}
        result["tables_cpu_s"] = round(sum(spent.values()), 1)
    return result


def _training_s(folder: Path) -> float:
    """Return the CPU time in which all ways to share of a published set are learned."""
    begin_s = time.process_time()
    with threadpool_limits(1):
        for pairs in pairs_by_way(read(folder)).values():
            if len(pairs) >= LEAST_PAIRS:
                trained(pairs)
    return time.process_time() - begin_s


def _once(gpus: int, count: int, name: str) -> list[float]:
    table = _table()
    return _decisions(gpus, make_colocator(name, dict.fromkeys(SlowdownTarget, table)), count)


def _ms(times_s: NDArray[np.float64], part: float) -> float:
    return round(1e3 * float(np.quantile(times_s, part)), 4)


def _table() -> SlowdownTable:
    """Return a table in which most pairs lose a little and some a lot."""
    rng = np.random.default_rng(0)
    names = tuple(f"w{number}" for number in range(WORKLOADS))
    values = rng.uniform(0.1, 0.9, (1, WORKLOADS, 1))
    profiles = Profiles(names, names, ("RTX3090",), ("sm_active",), values)
    lost = rng.exponential(0.08, WORKLOADS**2)
    estimate = SlowdownEstimate(-lost, np.full(WORKLOADS**2, 0.02))
    basis = np.full(WORKLOADS**2, CellBasis.PREDICTED, np.int8)
    return SlowdownTable(profiles, estimate, np.ones(1), basis)


def _decisions(
    gpus: int, policy: tuple[Colocator, InterferenceModel], count: int
) -> list[float]:
    rng = Random(1)
    ledger = DeviceLedger(*policy)
    machines = [
        Machine(MachineId(f"m{one}"), "RTX3090", 1, gpu_memory_mib=MEMORY_MIB)
        for one in range(gpus)
    ]
    ledger.follow(machines, 0.0)
    for gpu in ledger.gpus.order:
        workload = Workload(WorkloadKind.JOB, f"w{rng.randrange(WORKLOADS)}")
        memory_mib = rng.randrange(2_000, 23_000)
        ledger.hold(gpu.id, (Held(JobId("j"), workload, memory_mib, 0.5),), 0.0)
    placed: list[PlacedReplica] = []
    times_s = []
    for number in range(count + gpus):
        now_s = 1.0 + number
        workload_name = f"w{rng.randrange(WORKLOADS)}"
        need = Function(str(number), workload_name, rng.randrange(500, 6_000))
        begin_s = time.process_time()
        site = ledger.colocator.place(need, ledger.gpus, number % 100, now_s, rng)
        if not isinstance(site, Refusal):
            placed.append(ledger.place(number, workload_name, need, site, now_s))
        times_s.append(time.process_time() - begin_s)
        if len(placed) > gpus / 2:
            ledger.gone(placed.pop(rng.randrange(len(placed))), now_s)
    return times_s[gpus:]
