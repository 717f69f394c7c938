"""A convolutional network with a scaler for gradients; prints its losses bit by bit."""

import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(8 * 13 * 13, 10)

    def forward(self, images):
        return self.head(self.body(images))


torch.manual_seed(1)
torch.set_num_threads(1)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for step in range(steps):
    images, labels = torch.randn(32, 1, 28, 28), torch.randint(10, (32,))
    if step % 10 == 3:
        images[0, 0, 0, 0] = float("inf")  # the scaler will leave this step out
    loss = nn.functional.cross_entropy(model(images.clamp(-9, 9) * images.isfinite()), labels)
    if step % 10 == 3:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(loss.item().hex())
