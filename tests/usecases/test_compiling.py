"""Plain and compiled code give the same digits, and each is used when it should be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlane.model import MILLI, Cluster, Machine, MachineId
from interlane.policy.catalogue import ORDERS, PLACERS
from interlane.traces.synth import synthesize
from interlane.traces.write import write_trace

ROOT = Path(__file__).parents[2]
LAB = ROOT / "examples" / "lab.yaml"
JOBS = ROOT / "examples" / "jobs.csv"

SLOW_S = 3_600
"""Where `make setup` has not compiled, these do, on a machine that others may load."""

PLAY = """
import json, sys
from pathlib import Path
from interlane import compiling, wiring
from interlane.sim.experiment import Experiment, run
{pace}
trace_file, cluster_file, *policies = sys.argv[1:]
cluster = wiring.cluster_of(cluster_file)
trace = wiring.trace_of(Path(trace_file), cluster)
told = {{}}
for text in policies:
    choice = wiring.choice_of(wiring.policy_words(text, wiring.PolicyWords()))
    result = run(Experiment(trace, cluster, choice))
    told[text] = {{
        name: value
        for name, value in result.summary.items()
        if name not in ("cpu_s", "load_s", "compile_s")
    }} | {{"log": [repr(line) for line in result.log.lines()]}}
print(json.dumps([told, compiling.compiled_so_far()]))
"""


def _played(
    pace: str, trace: Path, *policies: str, cache: Path | None = None
) -> tuple[dict[str, object], int]:
    """Play in a process of its own, whose memory holds no compiled code."""
    env = dict(os.environ) | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PLAY.format(pace=pace), trace, LAB, *policies],
        env=env,
        stdout=subprocess.PIPE,
        check=True,
    )
    told, compiled = json.loads(done.stdout)
    return told, compiled


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs enough to fill the lab, to make them wait and to stop them."""
    machines = tuple(
        Machine(MachineId(str(at)), kind, gpus, 16 * MILLI, 64 * 1024)
        for at, (kind, gpus) in enumerate((("A100", 4), ("T4", 2), ("T4", 2)))
    )
    made = synthesize(jobs=80, cluster=Cluster("lab", machines), load=1.2, seed=3)
    path = tmp_path_factory.mktemp("plain") / "jobs.csv"
    write_trace(made, path)
    return path


@pytest.mark.timeout(SLOW_S)
def test_plain_code_gives_what_compiled_code_gives_under_every_policy(
    trace: Path, tmp_path: Path
) -> None:
    policies = [
        *(f"order={order},queue={queue}" for order in ORDERS for queue in ("skip", "easy")),
        *(f"placer={placer}" for placer in PLACERS),
        "order=sjf,queue=strict,elastic=0.5",
        "order=sjf,estimate=learning",
    ]

    plain, none = _played("compiling.compile_never()", trace, *policies, cache=tmp_path)
    compiled, _ = _played("compiling.compile_at_once()", trace, *policies)

    assert none == 0
    assert plain == compiled


def test_a_short_run_compiles_nothing_and_a_long_one_does(trace: Path, tmp_path: Path) -> None:
    policy = "order=fifo,placer=pack"

    short, compiled_by_short = _played("", trace, policy, cache=tmp_path)
    at_once, _ = _played("compiling.compile_at_once()", trace, policy)

    assert compiled_by_short == 0
    assert not list(tmp_path.rglob("*.nbi"))
    assert short == at_once


@pytest.mark.timeout(SLOW_S)
def test_after_compiling_everything_no_run_compiles() -> None:
    first = (
        "from interlane.usecases.compiling import compile_all\n"
        "compile_all()\ncompiling.compile_at_once()\nbefore = compiling.compiled_so_far()"
    )

    _played(first, JOBS, "order=fifo")
    policies = ["order=fifo", "order=srtf,queue=easy", "placer=best-fit", "placer=pai-balance"]
    _, compiled = _played("compiling.compile_at_once()", JOBS, *policies)

    assert compiled == 0
