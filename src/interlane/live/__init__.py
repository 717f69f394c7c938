"""What every live engine has in common: driver, store, questions, accounts, HTTP.

* ``port``: what an engine is; the only thing that is known here of whatever runs things.
* ``driver``: the one thread that owns the scheduler.  ``store``: what outlives it.
* ``files``: what users write.  ``questions``: explain, eta, plan, what-if, history.
* ``measure``: how jobs get on beside each other.  ``functions``: requests and warm replicas.
* ``http``: the API.  ``view``: the read side, all that the API, pages and metrics see.
"""
