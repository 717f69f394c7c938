"""How long MIG plans take: the fewest GPUs with their proof, and the first greedy plan.

Every figure is that of the slowest of four instances, normal and lognormal.
"""

import time
from itertools import product
from typing import Any

from interlane.mig.demand import GpuOffer, Problem, problem_of
from interlane.mig.optimise import optimise
from interlane.mig.plan import Effort
from interlane.mig.tables import synthetic
from interlane.mig.workloads import HALF, drawn_services

GPU = "A100-80GB"
SIZES = ((24, 1_000), (300, 5_000))
"""Services and the GPUs that they need."""

SEEDS = (0, 1)


def measure(*, quick: bool) -> dict[str, Any]:
    table = synthetic.table_of(synthetic.FAMILIES.values(), [GPU])
    result: dict[str, Any] = {}
    for count, gpus in SIZES[:1] if quick else SIZES:
        name = f"{count}_services_{gpus}_gpus"
        problems = []
        for shape, seed in product(("normal", "lognormal"), SEEDS):
            services = drawn_services(
                table, gpu=GPU, count=count, gpus=gpus, shape=shape, seed=seed
            )
            problems.append(problem_of(services, [GpuOffer(GPU)], table, latency=HALF))
        runs = 1 if quick else 3
        result[f"{name}_columns_cpu_s"] = max(_cpu_s(one, "columns", runs) for one in problems)
        result[f"{name}_greedy_cpu_s"] = max(_cpu_s(one, "greedy", runs) for one in problems)
        result[f"{name}_gap"] = max(_gap(one) for one in problems)
    return result


def _cpu_s(problem: Problem, optimiser: str, runs: int) -> float:
    """Return the CPU time of one plan, the best of some runs; the first one warms up."""
    times_s = []
    for _ in range(runs + 1):
        begin_s = time.process_time()
        optimise(problem, optimiser, Effort(60.0, clock=time.monotonic))
        times_s.append(time.process_time() - begin_s)
    return round(min(times_s), 3)


def _gap(problem: Problem) -> float:
    return optimise(problem, "columns", Effort(60.0, clock=time.monotonic)).gap
