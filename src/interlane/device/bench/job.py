"""A job of the bench: does what it is told by its arguments and prints what it saw as JSON.

It says ``ready``, and waits for a line before it begins what is measured.  Times are
nanoseconds on the machine's monotonic clock, which all processes share.
"""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import monotonic_ns, sleep
from typing import Any, Final

from interlane.device.attach import attach
from interlane.device.client import DeviceClient

WIDTH: Final = 512
CHECKS: Final = 20_000


def main() -> None:
    """Do what the first argument says, with the settings in the second."""
    kind, settings = sys.argv[1], json.loads(sys.argv[2])
    seen = KINDS[kind](settings)
    print(json.dumps(seen), flush=True)


def turns(settings: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Run iterations that only take time; return when each was asked for, began, ended."""
    length_ns = round(settings["iteration_ms"] * 1e6)
    pause_s = settings.get("pause_ms", 0) / 1e3
    with _client(settings) as client:
        _wait_for_go()
        return [_turn(client, length_ns, pause_s) for _ in range(settings["iterations"])]


def _turn(client: DeviceClient, length_ns: int, pause_s: float) -> tuple[int, int, int]:
    if pause_s:
        sleep(pause_s)
    asked_ns = monotonic_ns()
    client.begin()
    begun_ns = monotonic_ns()
    while (ended_ns := monotonic_ns()) < begun_ns + length_ns:
        pass
    client.end()
    return asked_ns, begun_ns, ended_ns


def hold(settings: dict[str, Any]) -> None:
    """Take the device and keep it, to be killed."""
    with _client(settings) as client, client.iteration():
        _wait_for_go()
        sleep(3600)


def check(settings: dict[str, Any]) -> dict[str, float]:
    """Return what one look at the revoke flag costs, and one iteration without hand-over."""
    with _client(settings) as client:
        _wait_for_go()
        with client.iteration():
            look_ns = _each_ns(lambda: client.revoked)
        nothing_ns = _each_ns(lambda: None)

        def iteration() -> None:
            client.begin()
            client.end()

        return {
            "look_ns": look_ns - nothing_ns,
            "iteration_ns": _each_ns(iteration) - nothing_ns,
        }


def _each_ns(call: Callable[[], object]) -> float:
    begin_ns = monotonic_ns()
    for _ in range(CHECKS):
        call()
    return (monotonic_ns() - begin_ns) / CHECKS


def train(settings: dict[str, Any]) -> None:
    """Train in stretches, one for each line: ``turns`` on leases, or ``alone`` without.

    Prints when each stretch began and ended.
    """
    step = _training(settings["batch"])
    step()
    with _client(settings) as client:
        print("ready", flush=True)
        for line in sys.stdin:
            gate = client.iteration if line == "turns\n" else nullcontext
            begin_ns = monotonic_ns()
            for _ in range(settings["iterations"]):
                with gate():
                    step()
            print(json.dumps((begin_ns, monotonic_ns())), flush=True)


def steps(settings: dict[str, Any]) -> list[tuple[int, int]]:
    """Train on a shared device; return when each iteration began and ended."""
    step = _training(settings["batch"], threads=settings.get("threads", 1))
    step()
    client = _client(settings)
    _wait_for_go()
    seen = []
    for _ in range(settings["iterations"]):
        with client.iteration():
            begin_ns = monotonic_ns()
            step()
            seen.append((begin_ns, monotonic_ns()))
    return seen


def calibrate(settings: dict[str, Any]) -> int:
    """Return the batch size with which a training step takes so long."""
    _wait_for_go()
    batch, wanted_ns = 64, settings["iteration_ms"] * 1e6
    for _ in range(3):  # a step has a part that does not grow with the batch
        batch = max(1, round(batch * wanted_ns / _step_ns(batch)))
    return batch


def _step_ns(batch: int) -> float:
    step = _training(batch)
    times_ns = []
    for _ in range(10):
        begin_ns = monotonic_ns()
        step()
        times_ns.append(monotonic_ns() - begin_ns)
    return median(times_ns)


def first_step(settings: dict[str, Any]) -> None:
    """Do all that a restarted job does up to the end of its first iteration."""
    _training(16, Path(settings["checkpoint"]))()
    _wait_for_go()


def save(settings: dict[str, Any]) -> None:
    """Write the checkpoint that a restarted job loads."""
    import torch

    _wait_for_go()
    torch.save(_model().state_dict(), settings["checkpoint"])


def _training(
    batch: int, checkpoint: Path | None = None, threads: int = 1
) -> Callable[[], None]:
    import torch

    torch.set_num_threads(threads)
    model = _model()
    if checkpoint is not None:
        model.load_state_dict(torch.load(checkpoint))
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(batch, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def _model() -> Any:  # noqa: ANN401 - torch is not imported where this is read
    import torch

    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    return torch.nn.Sequential(*layers)


def _client(settings: dict[str, Any]) -> DeviceClient:
    return attach(
        name="bench",
        socket=Path(settings["socket"]),
        priority=settings.get("priority", 0),
        total_s=settings.get("total_s"),
        memory="64MiB+64MiB",
    )


def _wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


KINDS: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "turns": turns,
    "hold": hold,
    "check": check,
    "train": train,
    "steps": steps,
    "calibrate": calibrate,
    "first-step": first_step,
    "save": save,
}

if __name__ == "__main__":
    main()
