"""A plain training loop; prints its losses bit by bit."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = torch.utils.data.TensorDataset(torch.randn(512, 64), torch.randint(10, (512,)))
loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
done = 0
while done < steps:
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
        done += 1
        if done == steps:
            break
