"""One machine in one thread: clock, disk, processes and sockets that a seed decides.

The code of shims, of the engine of this machine, of the device daemon and of the gateway is the
real one, loaded against the modules of ``calls`` in the place of the system's (``loading``).
"""
