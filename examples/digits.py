"""A training script as anybody would write it; ``build`` is for ``interlane share profile``."""

from collections.abc import Callable

import torch
from torch import nn


def build(rows: int = 256) -> Callable[[], None]:
    """Make model, optimizer and a batch; return one training step."""
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    images, labels = torch.randn(rows, 784), torch.randint(10, (rows,))

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


if __name__ == "__main__":
    step = build()
    for _ in range(100):
        step()
