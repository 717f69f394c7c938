"""Functions: short work that is asked for over HTTP, in what training leaves over.

``gateway`` takes requests and has them answered; ``deployed`` is one function with its queue
and replicas.  Replicas are run by an engine, of which ``port`` says what it must do.  How many
there are, where, and which go is decided by ``interlane.functions.scheduler``.
"""
