"""Who goes first, where, and beside whom: the choices that a scheduler is made of.

``base`` has the protocols (``Order``, ``Placer``, ``Plans``, ``ClusterView``) and ``policy``
puts them together.  ``order`` and ``place`` are the built-in ones, ``reserve`` those with
plans, ``colocate`` places functions beside jobs, and ``catalogue`` maps names to all of them.
``rows``, ``scores``, ``packing``, ``contention`` and ``victims`` are compiled questions about
the rows of ``interlane.tables``.

May be touched: a new order or placer is a class and a line in the catalogue, and the suites of
``testing.conformance`` run on it at once.  A policy answers questions and keeps nothing: it
sees a view, not the ledger, gets time and randomness as arguments, and decides nothing alone.
"""
