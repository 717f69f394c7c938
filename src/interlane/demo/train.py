"""Train a small model: ``python train.py mlp|cnn|transformer STEPS FETCH_MS``.

Before every step it waits for its batch, as jobs do that read from remote storage.  The last
line says how long the steps took, and how much of a core they and the start took.
"""

import json
import sys
import time

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """A transformer that classifies sequences."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(64, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores."""
        scores: Tensor = self.head(self.body(inputs).mean(1))
        return scores


def mlp() -> tuple[nn.Module, tuple[int, ...]]:
    """Return a perceptron of three layers and the shape of a batch."""
    layers = nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(1024, 10)), (96, 784)


def cnn() -> tuple[nn.Module, tuple[int, ...]]:
    """Return a small convolutional network and the shape of a batch."""
    layers = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU()
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(10)), (32, 3, 28, 28)


def transformer() -> tuple[nn.Module, tuple[int, ...]]:
    """Return a small transformer and the shape of a batch."""
    return Classifier(), (32, 24, 64)


def main(kind: str, steps: int, fetch_s: float) -> None:
    """Train for some steps and say how it went."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, shape = {"mlp": mlp, "cnn": cnn, "transformer": transformer}[kind]()
    inputs, labels = torch.randn(shape), torch.randint(10, shape[:1])
    model(inputs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.zeros(())
    begin_s = time.monotonic()
    for _ in range(steps):
        time.sleep(fetch_s)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    told = {
        "loop_s": time.monotonic() - begin_s,
        "cpu_s": time.process_time(),
        "loss": loss.item(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1_000)
