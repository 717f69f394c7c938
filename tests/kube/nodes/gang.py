"""One process of a training on several nodes, with plain ``torch.distributed``."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=world
    )
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        data = torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = ((model(data) - data.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = [one.hex() for one in model.module.weight.flatten().tolist()]
    print(json.dumps({"rank": rank, "weights": weights, "last": loss.item()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
