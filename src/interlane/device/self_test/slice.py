"""A program on the one GPU or slice that it sees: some products of matrices."""

import time

import torch


def main() -> None:
    """Multiply for a second; print how much memory and compute there is."""
    device = torch.device("cuda:0")
    factor = torch.randn(2048, 2048, device=device)
    torch.cuda.synchronize()
    begin_s, count = time.monotonic(), 0
    while time.monotonic() - begin_s < 1.0:
        factor = torch.tanh(factor @ factor)
        torch.cuda.synchronize()
        count += 1
    found = torch.cuda.get_device_properties(device)
    print(
        f"{found.multi_processor_count} SMs, {found.total_memory >> 20} MiB, {count} products"
    )


if __name__ == "__main__":
    main()
