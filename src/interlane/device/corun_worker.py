"""One job of a co-run, in a process of its own: build, warm up, wait, run, report."""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WARM_UP = 3
"""Steps before the clock starts."""


def main(name: str, cores: int) -> None:
    """Say when ready; whenever told for how many seconds, run and tell how it went."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import torch

    torch.set_num_threads(cores)
    torch.manual_seed(0)
    step = _step(name)
    for _ in range(WARM_UP):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(_run(step, float(line))), flush=True)


def _run(step: Callable[[], object], seconds: float) -> dict[str, float]:
    begin_s, begin_cpu_s, steps = time.perf_counter(), time.process_time(), 0
    while (passed_s := time.perf_counter() - begin_s) < seconds:
        step()
        steps += 1
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "steps": steps,
        "seconds": passed_s,
        "cpu_s": time.process_time() - begin_cpu_s,
        "memory_mib": peak_kib / 1024,
    }


def _step(name: str) -> Callable[[], object]:
    if ":" in name:
        from interlane.device.profile import builder_of

        return builder_of(name, Path.cwd())()
    family, _, batch = name.partition("/")
    import torch

    if family == "matmul":
        return _matmul(torch)
    model, inputs = _model(torch, family, int(batch))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        told = model(*inputs)
        (told[0] if isinstance(told, tuple) else told).square().mean().backward()
        optimizer.step()

    return step


def _matmul(torch: Any) -> Callable[[], object]:  # noqa: ANN401 - a module
    one, other = torch.randn(512, 512), torch.randn(512, 512)
    return lambda: one @ other


def _model(torch: Any, family: str, batch: int) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401 - a module
    """Return a small model of a family, and a batch for it."""
    nn = torch.nn
    if family == "mlp":
        layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64))
        return layers, (torch.randn(batch, 256),)
    if family == "cnn":
        layers = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten()
        )
        return layers, (torch.randn(batch, 3, 32, 32),)
    if family == "lstm":
        return nn.LSTM(64, 128, batch_first=True), (torch.randn(batch, 20, 64),)
    bag = nn.EmbeddingBag(200_000, 64)
    return bag, (torch.randint(0, 200_000, (batch, 32)),)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
