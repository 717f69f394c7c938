"""One machine's devices, shared by many programs that are switched between iterations."""
