"""Builders, fakes, strategies and conformance suites: shipped, public, for your tests too.

* ``build``        jobs, machines, clusters and schedulers in a sentence each
* ``conformance``  the contract of every placer and every order
* ``device``       a device that is a number
* ``faulty``       policies with one planted fault each, which the suite must catch
* ``mutate``       small faults planted in a module, and which of them no test notices
* ``naive``        plain twins of the kernel: slow, short, and obviously right
* ``strategies``   random clusters, books, jobs and traces (needs hypothesis)
"""
