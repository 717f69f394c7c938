"""A program that wants more memory than it declared, and can live without it."""

import sys

import torch


def main() -> None:
    """Take ever more memory of a device, up to so many MiB; print whether that was refused."""
    device, most_mib = sys.argv[1], int(sys.argv[2])
    model = torch.nn.Linear(64, 64).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.randn(4, 64, device=device)).sum().backward()
    optimizer.step()
    held = []
    try:
        for _ in range(most_mib // 32):
            held.append(torch.ones(8 << 20, device=device))
    except (RuntimeError, MemoryError):  # PyTorch's own out-of-memory error
        print(f"refused after {32 * len(held)} MiB")
    else:
        print(f"had {32 * len(held)} MiB")


if __name__ == "__main__":
    main()
