"""Two newer traces: recommendation models served in two parts, and a cluster of spot GPUs."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from interlane.model import UnknownName
from interlane.reproduce.base import Reproduction, Row, Setting, checked, claim, figure
from interlane.reproduce.pai import data_file
from interlane.reproduce.pai_sharing import HOUR_S
from interlane.reproduce.real_sharing import PODS

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from interlane.model import Cluster
    from interlane.traces.schema import Trace

DLRM: Final = "pai-v2025/disaggregated_DLRM_trace.csv.gz"
GPU_SIDE, CPU_SIDE = "HN", "CN"
BOX_GPUS, BOX_CPUS = 8, 96
"""A machine with GPUs as PAI's table has most of them."""

SPOT: Final = {"A10": 2494, "A100-SXM4-80GB": 3456, "H800": 1752}
"""GPUs of three models, as the trace's authors count them."""
SPOT_GPUS: Final = 10_412
PLACERS: Final = ("fgd", "best-fit", "random")
SEEDS: Final = 2
FULL: Final = 120
"""Percent of the capacity that arrives."""


# -- recommendation models in two parts -----------------------------------------------


def _dlrm(setting: Setting) -> list[Row]:
    import numpy as np
    import polars as pl

    from interlane import wiring

    trace = wiring.any_trace(data_file(setting, DLRM))
    sides = {side: trace.frame.filter(pl.col("queue") == side) for side in (GPU_SIDE, CPU_SIDE)}
    last_s = float((trace.frame["submit_s"] + trace.frame["duration_s"]).max())  # type: ignore[arg-type]
    hours = np.arange(1, int(last_s) // HOUR_S)
    gpus = _held(sides[GPU_SIDE], "gpus", hours)
    cpus = {side: _held(frame, "cpu_milli", hours) / 1000 for side, frame in sides.items()}
    every = cpus[GPU_SIDE] + cpus[CPU_SIDE]
    together = np.maximum(gpus / BOX_GPUS, every / BOX_CPUS)
    apart = np.maximum(gpus / BOX_GPUS, cpus[GPU_SIDE] / BOX_CPUS)
    played = _most_at_once(trace, setting)
    swept = int(_sweep(sides[GPU_SIDE]).max())
    waits_s = {side: frame["waited_s"].drop_nulls() for side, frame in sides.items()}
    rows = [figure(f"instances, {side}", frame.height) for side, frame in sides.items()]
    rows += [
        figure(f"waited in truth, mean and P99, s, {side}", _spread(waits_s[side].to_numpy()))
        for side in sides
    ]
    return [
        *rows,
        figure("GPUs held, mean over the hours", round(float(gpus.mean()))),
        figure("CPUs held for each GPU", round(float(every.mean() / gpus.mean()), 1)),
        figure(
            f"machines of {BOX_GPUS} GPUs and {BOX_CPUS} CPUs, if all ran on them",
            round(float(together.mean())),
        ),
        figure("the same, if only the GPU side did", round(float(apart.mean()))),
        figure(
            "GPUs that would idle on the former, %",
            round(100 * float(1 - (gpus / BOX_GPUS / together).mean()), 1),
        ),
        checked(
            "most GPUs held at once, played by the kernel on as many as it likes",
            played,
            f"{swept}, by a sweep over the file",
            played == swept,
            "The kernel would start instances later, or end them sooner, than they did.",
        ),
        claim(
            "in truth, the side with GPUs waited longer",
            float(waits_s[GPU_SIDE].mean()) > float(waits_s[CPU_SIDE].mean()),  # type: ignore[arg-type]
            "Roles would be mixed up.",
        ),
    ]


def _spread(waits_s: "NDArray[np.float64]") -> str:
    import numpy as np

    return f"{waits_s.mean():,.0f}, {np.quantile(waits_s, 0.99):,.0f}"


def _held(
    frame: "pl.DataFrame", column: str, hours: "NDArray[np.int64]"
) -> "NDArray[np.float64]":
    """Return what is held at each hour."""
    import numpy as np

    start_s = frame["submit_s"].to_numpy()
    end_s = start_s + frame["duration_s"].to_numpy()
    what = frame[column].to_numpy().astype(np.float64)
    totals = []
    for times_s in (start_s, end_s):
        order = np.argsort(times_s, kind="stable")
        upto = np.concatenate([[0.0], np.cumsum(what[order])])
        totals.append(upto[np.searchsorted(times_s[order], hours * HOUR_S, side="right")])
    return np.asarray(totals[0] - totals[1])


def _sweep(frame: "pl.DataFrame") -> "NDArray[np.int64]":
    """Return the GPUs held after every start and end; ends come first."""
    import numpy as np

    start_s = frame["submit_s"].to_numpy()
    end_s = start_s + frame["duration_s"].to_numpy()
    gpus = frame["gpus"].to_numpy()
    at_s, change = np.concatenate([end_s, start_s]), np.concatenate([-gpus, gpus])
    return np.asarray(np.cumsum(change[np.lexsort((change, at_s))]))


def _most_at_once(trace: "Trace", setting: Setting) -> int:
    """Play the GPU side on more machines than it needs; return the most GPUs held."""
    import numpy as np
    import polars as pl

    from interlane import wiring
    from interlane.metrics.outcomes import outcomes
    from interlane.model import MILLI, Cluster, Machine, MachineId
    from interlane.sim.experiment import Experiment, engine_for, jobs_in, play
    from interlane.traces.clusters import ENDLESS_GPU_MIB, ENDLESS_MIB

    frame = trace.frame.filter(pl.col("queue") == GPU_SIDE)
    machines = tuple(
        Machine(
            MachineId(f"box-{number:04}"),
            "G3",
            BOX_GPUS,
            2 * BOX_CPUS * MILLI,
            ENDLESS_MIB,
            ENDLESS_GPU_MIB,
        )
        for number in range(frame.height // BOX_GPUS + 1)
    )
    choice = wiring.choice_of(wiring.PolicyWords("fifo", "pack"))
    cluster = Cluster("boxes", machines)
    experiment = Experiment(replace(trace, frame=frame), cluster, choice, seed=setting.seed)
    jobs, true_s = jobs_in(experiment)
    ends = outcomes(play(engine_for(experiment, jobs, true_s)))
    gpus = ends.gpu_milli // MILLI
    at_s = np.concatenate([ends.finished_s, ends.first_start_s])
    change = np.concatenate([-gpus, gpus])
    return int(np.cumsum(change[np.lexsort((change, at_s))]).max())


# -- a cluster of spot GPUs -----------------------------------------------------------


def _spot(setting: Setting) -> list[Row]:
    from interlane import wiring

    if setting.data is None:
        raise UnknownName("cluster", "spot2026", ())
    clusters = {name: wiring.cluster_of(name, setting.data) for name in ("openb", "spot2026")}
    spot = clusters["spot2026"]
    rows = [_counted(spot)]
    alone = sum(machine.gpus == 1 for machine in spot)
    rows.append(
        figure("machines with a single GPU, % of machines", _of(alone, len(spot.machines)))
    )
    allocated: dict[tuple[str, str], float] = {}
    total = len(clusters) * len(PLACERS)
    for name, cluster in clusters.items():
        for placer in PLACERS:
            allocated[name, placer] = _filled(setting, cluster, placer)
            what = f"{name}: GPUs allocated when {FULL} % has arrived, %, {placer}"
            rows.append(figure(what, round(allocated[name, placer], 2)))
            setting.progress(len(allocated), total, "fillings")
    return [
        *rows,
        *(
            claim(
                f"{name}: fgd leaves fewer GPUs idle than random does",
                allocated[name, "fgd"] > allocated[name, "random"],
                "The placer would not keep GPUs together.",
            )
            for name in clusters
        ),
        claim(
            "what a good placer is worth (fgd less random) is less on single-GPU machines",
            _worth(allocated, "spot2026") < _worth(allocated, "openb"),
            "Fragments would not come from machines with several GPUs.",
        ),
    ]


def _worth(allocated: dict[tuple[str, str], float], cluster: str) -> float:
    return allocated[cluster, "fgd"] - allocated[cluster, "random"]


def _counted(cluster: "Cluster") -> Row:
    by_model = dict.fromkeys(SPOT, 0)
    for machine in cluster:
        if machine.gpu_type in by_model:
            by_model[machine.gpu_type] += machine.gpus
    total = sum(machine.gpus for machine in cluster)
    return checked(
        f"GPUs of the spot cluster ({', '.join(f'{n:,} {m}' for m, n in by_model.items())})",
        total,
        SPOT_GPUS,
        total == SPOT_GPUS and by_model == SPOT,
        "The node table would be read wrongly.",
    )


def _of(part: int, whole: int) -> float:
    return round(100 * part / whole, 1)


def _filled(setting: Setting, cluster: "Cluster", placer: str) -> float:
    """Return the mean percentage of GPUs that are allocated, over the seeds."""
    return (
        sum(_fill(setting, cluster, placer, setting.seed + more) for more in range(SEEDS))
        / SEEDS
    )


def _fill(setting: Setting, cluster: "Cluster", placer: str, seed: int) -> float:
    import polars as pl

    from interlane import wiring
    from interlane.policy.catalogue import placer_recipe
    from interlane.sim.fill import arrivals, fill
    from interlane.traces.jobs import jobs_of

    trace = wiring.any_trace(data_file(setting, PODS))
    anywhere = replace(trace, frame=trace.frame.with_columns(gpu_types=pl.lit("")))
    jobs = jobs_of(anywhere, estimate=None)[0]
    seen = fill(cluster, arrivals(jobs, cluster, seed), placer_recipe(placer), seed)
    return seen.at(FULL, seen.allocated_percent)


DISAGGREGATED: Final = Reproduction(
    "dlrm-disaggregated",
    "23,871 real instances of 156 recommendation models, GPU side and CPU side apart, by their "
    "own starts and ends: what they would need if both sides shared machines.",
    "The trace would be read or played wrongly.",
    _dlrm,
    teaches="Recommendation models hold some 110 CPUs for each GPU: on machines with 8 GPUs "
    "and 96 CPUs nine GPUs in ten would idle, which no placer can mend.",
)
SPOT_NODES: Final = Reproduction(
    "spot-nodes",
    "openb's real pods fill the 4,278 machines of a real spot cluster, beside openb's own "
    "machines: what a placer is worth where most machines have one GPU.",
    "The node table would be read wrongly, or placers would not do what they are for.",
    _spot,
    teaches="Where four machines in five have a single GPU, there is less to gain by a better "
    "placer: fragmentation is a problem of machines with several GPUs.",
    published=(
        "interlane.reproduce.real_clusters:SPOT",
        "interlane.reproduce.real_clusters:SPOT_GPUS",
    ),
)
