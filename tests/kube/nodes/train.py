"""An ordinary PyTorch training: it knows nothing of who else is on its device."""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--steps", type=int, default=60)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--checkpoint", type=Path)
    words.add_argument("--wait-for", type=Path)
    asked = words.parse_args()
    torch.manual_seed(asked.seed)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses: list[float] = []
    begun = 0
    if asked.checkpoint and asked.checkpoint.exists():
        kept = torch.load(asked.checkpoint)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        losses, begun = kept["losses"], len(kept["losses"])

    def save(*_: object) -> None:
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        fresh = asked.checkpoint.with_suffix(".new")
        torch.save({**kept, "losses": losses}, fresh)
        fresh.rename(asked.checkpoint)
        print(json.dumps({"stopped_after": len(losses)}), flush=True)
        sys.exit(143)

    told: list[int] = []
    if asked.checkpoint:
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    step = begun
    while step < asked.steps or (asked.wait_for and not asked.wait_for.exists()):
        generator = torch.Generator().manual_seed(1_000 * asked.seed + step)
        data = torch.randn(128, 64, generator=generator)
        loss = ((model(data) - data.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        step += 1
        if told:
            save()
    print(
        json.dumps(
            {
                "begun_at": begun,
                "losses": [one.hex() for one in losses[: asked.steps]],
                "device": os.environ.get("INTERLANE_DEVICES"),
            }
        )
    )


if __name__ == "__main__":
    main()
