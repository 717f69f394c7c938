"""A job that keeps so many cores busy: ``filler THREADS STEPS MOST_SECONDS``.

Prints when its steps began and ended, as JSON; a job that runs out of time prints when it would
have ended.
"""

import json
import sys
from time import monotonic


def main() -> None:
    """Make the steps."""
    import torch
    from torch import nn

    threads, steps, most_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(16, 3, 32, 32)
    began_s = monotonic()
    made = 0
    while made < steps and monotonic() - began_s < most_s:
        model(images).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        made += 1
    took_s = (monotonic() - began_s) * steps / max(1, made)
    print(json.dumps({"began_s": began_s, "ended_s": began_s + took_s, "made": made}))


if __name__ == "__main__":
    main()
