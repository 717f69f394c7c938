"""How long the command line takes to say what it can do."""

import resource
import subprocess
import sys
from typing import Any


def measure(*, quick: bool) -> dict[str, Any]:
    runs = [_help_cpu_s() for _ in range(2 if quick else 5)]
    return {"help_cpu_s": min(runs)}


def _help_cpu_s() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "interlane", "--help"], stdout=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(used_s, 3)
