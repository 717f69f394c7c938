"""Functions: short work that is asked for over HTTP, in what training leaves over.

``gateway`` takes requests and has them answered; ``deployed`` is one function with its queue
and replicas; a ``nursery`` is a process that has imported what replicas need and forks them,
``replica`` is what such a fork does, and ``wire`` how it speaks.  How many replicas there are
is decided by ``interlane.functions`` (``warmth`` asks it), where they are by
``interlane.policy.colocate`` (``lender``).
"""
