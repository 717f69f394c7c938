"""One machine's devices, shared by many programs that are switched between iterations."""

from interlane.device.attach import attach

__all__ = ["attach"]
