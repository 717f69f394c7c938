"""``interlane demo --simulated``: a day of a small cluster under six policies."""

from typing import TYPE_CHECKING, Final

from interlane.cli.compare import show
from interlane.cli.output import OutputFormat, say
from interlane.cli.progress import TERMINAL

if TYPE_CHECKING:
    from interlane.model import Cluster

JOBS: Final = 1_500
LOAD: Final = 0.95
SEED: Final = 7
POLICIES: Final = (
    "order=fifo,placer=first-fit,queue=strict",
    "order=fifo,placer=pack,queue=skip",
    "order=fifo,placer=pack,queue=easy,estimate=group_dur",
    "order=sjf,placer=pack,queue=skip,estimate=group_dur",
    "order=sjf,placer=fgd,queue=skip,estimate=group_dur",
    "order=las,placer=pack,queue=skip",
)


def simulated_day(processes: int | None, output: OutputFormat) -> None:
    """Make a day of work for a small cluster and compare six policies on it."""
    from interlane.usecases.simulate import compare_synthetic

    cluster = _cluster()
    say(
        f"{JOBS:,} synthetic jobs, PAI-like, for {len(cluster)} machines with {cluster.gpus} "
        "GPUs; the first run compiles, which takes about half a minute."
    )
    found = compare_synthetic(
        cluster,
        POLICIES,
        jobs=JOBS,
        load=LOAD,
        seed=SEED,
        processes=processes,
        reporter=TERMINAL,
    )
    show(found, output)
    first, best = found.runs[0], min(found.runs, key=_mean_wait_s)
    say(
        f"What to see: the same jobs on the same GPUs wait {_mean_wait_s(best):,.0f} s on "
        f"average under {best['policy']}, and {_mean_wait_s(first):,.0f} s under "
        f"{first['policy']}."
    )


def _mean_wait_s(run: dict[str, object]) -> float:
    waited_s = run["mean_wait_s"]
    assert isinstance(waited_s, float)
    return waited_s


def _cluster() -> "Cluster":
    """Return 24 machines of the kinds that PAI has."""
    from interlane.model import MILLI, Cluster, Machine, MachineId
    from interlane.model.gpu import GPU_MEMORY_MIB
    from interlane.model.units import MIB_PER_GIB

    kinds = ((4, "MISC", 8, 96), (8, "T4", 2, 96), (8, "P100", 2, 64), (4, "V100", 8, 96))
    machines = [
        Machine(
            MachineId(f"{kind.lower()}-{number}"),
            kind,
            gpus,
            cpus * MILLI,
            512 * MIB_PER_GIB,
            GPU_MEMORY_MIB[kind],
        )
        for count, kind, gpus, cpus in kinds
        for number in range(count)
    ]
    return Cluster("demo", tuple(machines))
