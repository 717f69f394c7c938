import faulthandler
import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

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

# -- what tests leave behind ----------------------------------------------------------------

LIMITS = (
    resource.RLIMIT_DATA,
    resource.RLIMIT_AS,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_FSIZE,
)


@pytest.fixture(autouse=True)
def _limits_stay_as_they_are() -> Iterator[None]:
    """Fail a test that leaves its process less memory than it had: another would die of it."""
    before = [resource.getrlimit(one) for one in LIMITS]
    yield
    assert [resource.getrlimit(one) for one in LIMITS] == before


# -- a worker that dies ---------------------------------------------------------------------

_last_words: dict[str, IO[str]] = {}


def _words_of(run: str, worker: str) -> Path:
    return Path(tempfile.gettempdir()) / f"interlane-tests-{run}-{worker}.txt"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let a worker of many write where it was when it died, for the report of its test."""
    told = getattr(config, "workerinput", None)
    if told is not None:
        path = _words_of(told["testrunuid"], told["workerid"])
        file = _last_words["file"] = path.open("w+", encoding="utf-8")
        faulthandler.enable(file)


def pytest_runtest_logstart() -> None:
    """Note how much memory the worker has taken: whoever is killed for it says nothing."""
    file = _last_words.get("file")
    if file is not None:
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        file.seek(0)
        file.write(f"{peak_mib:>8,} MiB at most before this test\n")
        file.flush()


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Say how a worker died: by which signal, where, and with how much memory."""
    node: Any = getattr(report, "node", None)
    if node is None:
        return
    path = _words_of(node.workerinput["testrunuid"], node.workerinput["workerid"])
    ended = getattr(getattr(node.gateway, "_io", None), "popen", None)
    code = ended.wait(timeout=30) if ended is not None else "unknown"
    words = path.read_text(encoding="utf-8") if path.exists() else ""
    path.unlink(missing_ok=True)
    report.longrepr = f"{report.longrepr}\nexit code {code} (below 0: signal)\n{words}"


def pytest_unconfigure() -> None:
    """Leave nothing of a worker that ended well."""
    file = _last_words.pop("file", None)
    if file is not None:
        faulthandler.enable()
        file.close()
        Path(file.name).unlink(missing_ok=True)


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
