"""A trial of the benchmark: a small network learns a function, fetching each batch for a while.

    python -m benchmarks.sweep_trial numpy|torch --lr 0.1 --width 64 --steps 100

The wait stands for reading a batch from a store that others use, and is most of a step: so
much of a device is idle if one trial has it for itself.  It is printed at the end.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a trial has one thread, whatever it computes with
import numpy as np

WAIT_S = 0.016
ROWS = 256
INPUTS = 32
SEED = 7
EVERY = 10
"""Steps between two reports."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("framework", choices=("numpy", "torch"))
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    said = parser.parse_args()
    make = of_torch if said.framework == "torch" else of_numpy
    step, batches = make(said.width, said.lr), fetched(said.steps)
    if said.framework == "numpy":  # torch is switched without being asked
        from interlane.device import attach

        batches = attach().each(batches)
    begin_s, busy_s = time.monotonic(), 0.0
    for number, (inputs, wanted) in enumerate(batches, 1):
        began_s = time.monotonic()
        loss = step(inputs, wanted)
        busy_s += time.monotonic() - began_s
        if number % EVERY == 0:
            print(f"step {number} loss={loss:.6f}", flush=True)
    whole_s = time.monotonic() - begin_s
    print(f"inside steps {busy_s / whole_s:.0%} of {whole_s:.1f} s", flush=True)


def fetched(steps: int) -> Iterator[tuple[Any, Any]]:
    """Yield batches of a function that is to be learned, each after a wait."""
    rng = np.random.default_rng(SEED)
    weights = rng.normal(size=(INPUTS, 1))
    for _ in range(steps):
        time.sleep(WAIT_S)
        inputs = rng.normal(size=(ROWS, INPUTS))
        yield inputs, np.sin(inputs @ weights)


Step = Callable[[Any, Any], float]


def of_numpy(width: int, lr: float) -> Step:
    rng = np.random.default_rng(SEED)
    first = rng.normal(size=(INPUTS, width)) / INPUTS**0.5
    second = rng.normal(size=(width, 1)) / width**0.5

    def step(inputs: Any, wanted: Any) -> float:  # noqa: ANN401 - arrays
        hidden = np.tanh(inputs @ first)
        error = hidden @ second - wanted
        down = (error @ second.T) * (1 - hidden**2)
        second[:] -= lr * hidden.T @ error / ROWS
        first[:] -= lr * inputs.T @ down / ROWS
        return float((error**2).mean())

    return step


def of_torch(width: int, lr: float) -> Step:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def step(inputs: Any, wanted: Any) -> float:  # noqa: ANN401 - arrays
        optimizer.zero_grad()
        told = torch.as_tensor(wanted, dtype=torch.float32)
        found = model(torch.as_tensor(inputs, dtype=torch.float32))
        loss = torch.nn.functional.mse_loss(found, told)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    return step


if __name__ == "__main__":
    main()
