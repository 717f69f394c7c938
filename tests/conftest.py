import os
import signal

from hypothesis import HealthCheck, settings

# Compiled code makes first examples slow, so there is no deadline; a run on CI repeats
# exactly, a run at home explores.
settings.register_profile(
    "interlane",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=int(os.environ.get("INTERLANE_EXAMPLES", "60")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("interlane")

# Shells start background commands with interrupts ignored, and children inherit that; tests
# that interrupt programs need them heard.
signal.signal(signal.SIGINT, signal.default_int_handler)
