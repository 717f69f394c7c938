"""Compile everything beforehand, here or beside a server that starts meanwhile.

Nothing says which types a compiled function meets but its callers.  So small pieces of work
are done that lead through all of them; ``tests/usecases/test_compiling.py`` finds those that
are left out.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final

from interlane import compiling, wiring
from interlane._compiled_cache import is_complete, note_complete
from interlane.model import MILLI, Cluster, Machine, MachineId
from interlane.model.gpu import NO_GPU
from interlane.sim.experiment import Experiment, run
from interlane.sim.explain import status
from interlane.traces.schema import Trace
from interlane.traces.synth import synthesize

POLICIES: Final = (
    "order=fifo,placer=pack,queue=skip",
    "order=fifo,placer=random,queue=easy",
    "order=srtf,placer=fgd,queue=skip",
    "order=sjf,placer=reserve-and-lend,queue=skip,elastic=0.5",
    "order=sjf,placer=lookahead,queue=skip,estimate=learning",
    "order=las,placer=d-choices,queue=strict",
    "order=priority,placer=uncontended,queue=easy",
)
JOBS: Final = 60


def compile_all() -> int:
    """Compile what is not on disk yet; return how many functions that were."""
    with _only_one():
        if is_complete():
            return 0
        compiling.compile_at_once()
        before = compiling.compiled_so_far()
        for work in _WORK:
            work()
        note_complete()
        return compiling.compiled_so_far() - before


@contextmanager
def _only_one() -> Iterator[None]:
    """Let processes that want the same compile one after the other: the first does it all."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if folder is None:  # nothing can be written, and everybody is on their own
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _schedule() -> None:
    """Play jobs of one kind of instance under policies that differ in what they call."""
    trace = synthesize(jobs=JOBS, cluster=_CLUSTER, load=1.5, seed=1)
    for policy in POLICIES:
        _play(trace, policy)


def _schedule_roles() -> None:
    """Play jobs whose instances differ, and ask why the last one waits."""
    with TemporaryDirectory(prefix="interlane-compile-") as folder:
        path = Path(folder) / "roles.csv"
        path.write_text(_ROLES, encoding="utf-8")
        trace = wiring.trace_of(path, _CLUSTER)
    for policy in ("order=fifo,queue=skip", "order=fifo,queue=easy"):
        _play(trace, policy)
        status(_experiment(trace, policy), "c", 30.0)


def _experiment(trace: Trace, policy: str) -> Experiment:
    choice = wiring.choice_of(wiring.policy_words(policy, wiring.PolicyWords()))
    return Experiment(trace, _CLUSTER, choice)


def _play(trace: Trace, policy: str) -> None:
    run(_experiment(trace, policy))


def _machine(name: str, gpu_type: str, gpus: int, cpus: int) -> Machine:
    return Machine(MachineId(name), gpu_type, gpus, cpus * MILLI, 512 * 1024)


_CLUSTER: Final = Cluster(
    "small",
    (
        _machine("a", "V100", 8, 96),
        _machine("b", "T4", 2, 96),
        _machine("c", "P100", 2, 64),
        _machine("d", NO_GPU, 0, 64),
    ),
)
_ROLES: Final = """\
job_id,submit_s,duration_s,role,instances,gpus,gpu_milli,cpu_milli,memory_mib
a,0,100,ps,2,0,,4000,4096
a,0,100,worker,6,1,500,4000,4096
b,10,100,ps,1,0,,4000,4096
b,10,100,worker,4,2,1000,4000,4096
c,20,100,ps,1,0,,4000,4096
c,20,100,worker,5,2,1000,4000,4096
"""

_WORK: Final[tuple[Callable[[], None], ...]] = (_schedule, _schedule_roles)


def compile_beside() -> None:
    """Let this process wait for no compiler: another compiles, and this one changes over.

    The other goes on when this one ends: what it compiles is for whoever comes next.
    """
    compiling.compile_never()
    if is_complete():
        return
    other = subprocess.Popen(
        (sys.executable, "-m", "interlane", "compile"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    Thread(target=_change_over, args=(other,), daemon=True).start()


def _change_over(other: "subprocess.Popen[bytes]") -> None:
    if other.wait() == 0:
        compiling.look_again()
