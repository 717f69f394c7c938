"""A training as anybody might write it: nothing in it knows that its device is shared.

It trains for some seconds on a device and prints when each backward pass began and ended, in
seconds on the machine's monotonic clock, which all processes share: well within an iteration.
"""

import json
import sys
import time

import torch


def main() -> None:
    """Train on the device that the first argument names, for so many seconds."""
    device, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(256, 512, device=device)
    labels = torch.randint(0, 10, (256,), device=device)
    seen, end_s = [], time.monotonic() + seconds
    while time.monotonic() < end_s:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        begin_s = time.monotonic()
        loss.backward()  # type: ignore[no-untyped-call]
        if device != "cpu":
            torch.cuda.synchronize()
        seen.append((begin_s, time.monotonic()))
        optimizer.step()
    print(json.dumps({"steps": len(seen), "loss": float(loss), "times": seen[:2000]}))


if __name__ == "__main__":
    main()
