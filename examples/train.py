"""A training script that knows nothing of sharing."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
steps = int(sys.argv[1])
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(steps):
    inputs, labels = torch.randn(128, 64), torch.randint(10, (128,))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
print(f"trained {steps} steps")
