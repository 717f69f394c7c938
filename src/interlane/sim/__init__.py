"""The engine of virtual time: traces in, a log of events out.

``engine`` plays jobs against the very scheduler that runs live; ``world`` is what the scheduler
may not know (true lengths, speeds, failures), ``learning`` wraps it in a predictor that learns
as jobs end, and ``experiment`` puts a run together.  ``forward`` plays what is known now into
the future, ``fill`` has arrivals only, ``lanes`` and ``harvest`` share devices.

May be touched: true lengths never leave this package, the clock only moves forward, and all
random numbers come from seeds, so that a run can be repeated to the last digit.
"""
