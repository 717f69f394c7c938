import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from interlane.testing.nvidia import NvidiaHost
from interlane.testing.nvidia.host import LIBRARY, build_library

# Compiled code makes first examples slow, so there is no deadline.  `make test` draws the same
# cases every time, on every machine: what fails for one fails for all.  `make fuzz` draws new
# ones from a seed that it prints.  Neither keeps examples, which would make runs differ.
settings.register_profile(
    "interlane",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("INTERLANE_EXAMPLES", "60")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "fuzz",
    settings.get_profile("interlane"),
    derandomize=False,
    print_blob=True,
    max_examples=int(os.environ.get("INTERLANE_EXAMPLES", "300")),
)
# `make mutate` wants to know that a case fails, not the smallest one that does.
settings.register_profile(
    "mutate", settings.get_profile("interlane"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("interlane")

# Hypothesis also draws constants that it finds in the modules that are imported at the time, so
# that cases would depend on which tests ran before in the same process.
providers._get_local_constants = lambda: providers._local_constants

# Shells start background commands with interrupts ignored, and children inherit that; tests
# that interrupt programs need them heard.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def nvidia_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library that stands in for NVIDIA's."""
    path = tmp_path_factory.mktemp("nvidia") / LIBRARY
    build_library(path)
    return path


@pytest.fixture
def nvidia(nvidia_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaHost:
    """Let this process, and those that it starts, be on a host with NVIDIA GPUs."""
    host = NvidiaHost(tmp_path / "nvidia", nvidia_library)
    host.load()
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    return host
