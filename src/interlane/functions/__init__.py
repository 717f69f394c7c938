"""Which functions are warm: decisions about replicas, without clock, memory or network.

``pool`` keeps the state of what is where (device, host, disk); ``costs`` says what warmth is
worth; ``advise`` says how many replicas to want, in several ways, and ``portfolio`` follows
the way that has cost least; ``prewarm`` turns it into actions.  An engine tells events (asked,
served, loaded, a slot passed) and carries out actions (load, unload), in a simulator
as on real devices.
"""
