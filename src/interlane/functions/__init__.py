"""Which functions are warm: decisions about replicas, without clock, memory or network.

``pool`` keeps the books of what is where (device, host, disk); ``costs`` says what warmth is
worth; ``advise`` says how many replicas to want, in several ways, and ``portfolio`` follows
the way that has cost least; ``prewarm`` turns it into wishes.  A body tells facts (asked,
served, loaded, a slot passed) and carries out wishes (load, unload), in a simulator
as on real devices.
"""
