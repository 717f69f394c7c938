"""What sharing saves on real requests: openb by its own times, and PAI's jobs as counted.

"MLaaS in the Wild" says that sharing halves the GPUs that are needed (figure 8).  Its hourly
trace is not public in that form.  Here the same question is asked of what is.
"""

from collections import Counter
from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING, Final

from interlane.reproduce.base import Reproduction, Row, Setting, checked, claim, figure
from interlane.reproduce.pai import data_file
from interlane.reproduce.pai_sharing import HOUR_S, SAVED, WHOLE, packed, whole

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from interlane.model import Cluster
    from interlane.sim.experiment import Experiment
    from interlane.traces.schema import Trace

PODS: Final = "pai-v2023/openb_pod_list_default.csv"
CLASSES: Final = "pai-v2020/pai_request_classes_84879jobs.csv"
JOBS: Final = "pai-v2020/pai_real_1000jobs.csv"

SETTLED: Final = 0.02
"""The part of openb's starts before which few of its pods are seen."""
POOLS: Final = (32, 40, 48, 56)
"""GPUs on which openb's pods are played; without sharing it needs 39 of them on average."""
POOL_CPUS: Final = 17.2
"""CPUs a GPU on openb's GPU machines."""


# -- openb, by its own starts and ends ------------------------------------------------


def _openb(setting: Setting) -> list[Row]:
    import numpy as np

    pods = _pods(setting)
    start_s, end_s = (pods[name].to_numpy() for name in ("scheduled_time", "deletion_time"))
    asked = (pods["num_gpu"] * pods["gpu_milli"] // 10).to_numpy()
    first = ceil(float(np.quantile(start_s, SETTLED)) / HOUR_S)
    hours = np.arange(first, int(end_s.max()) // HOUR_S)
    needs = [_at(float(hour * HOUR_S), start_s, end_s, asked) for hour in hours]
    alone, shared = (np.array([count(one) for one in needs]) for count in (whole, packed))
    least = np.array([sum(ask * n for ask, n in one.items()) / WHOLE for one in needs])
    impossible = int(((shared < least) | (shared > alone)).sum())
    swept = _swept(hours, start_s, end_s, asked)
    differ = int((swept != alone).sum())
    saved = 100 * (1 - shared.sum() / alone.sum())
    return [
        figure("GPU pods with a start and an end", pods.height),
        figure(
            f"GPUs needed on average over {len(hours):,} hours", round(float(alone.mean()), 1)
        ),
        figure("the same, shares packed", round(float(shared.mean()), 1)),
        figure("GPUs saved on average, %", round(saved, 1), SAVED),
        checked(
            "hours with fewer GPUs than shares add up to, or more than without sharing",
            impossible,
            None,
            impossible == 0,
            "Packing would count GPUs that are not there, or waste those that are.",
        ),
        checked(
            "hours at which a sweep over starts and ends counts otherwise",
            differ,
            None,
            differ == 0,
            "GPUs would be counted at hours at which nobody holds them.",
        ),
        *_played(setting),
    ]


def _pods(setting: Setting) -> "pl.DataFrame":
    import polars as pl

    pods = pl.read_csv(data_file(setting, PODS))
    ran = pl.col("scheduled_time").is_not_null()
    return pods.filter((pl.col("num_gpu") > 0) & ran)


def _at(
    at_s: float,
    start_s: "NDArray[np.int64]",
    end_s: "NDArray[np.int64]",
    asked: "NDArray[np.int64]",
) -> Counter[int]:
    return Counter(asked[(start_s <= at_s) & (at_s < end_s)].tolist())


def _swept(
    hours: "NDArray[np.int64]",
    start_s: "NDArray[np.int64]",
    end_s: "NDArray[np.int64]",
    asked: "NDArray[np.int64]",
) -> "NDArray[np.int64]":
    """Return whole GPUs held at each hour, by running totals of starts less those of ends."""
    import numpy as np

    gpus = -(-asked // WHOLE)
    totals = []
    for times_s in (start_s, end_s):
        order = np.argsort(times_s, kind="stable")
        upto = np.concatenate([[0], np.cumsum(gpus[order])])
        totals.append(upto[np.searchsorted(times_s[order], hours * HOUR_S, side="right")])
    return np.asarray(totals[0] - totals[1])


def _played(setting: Setting) -> Iterator[Row]:
    """Yield the waits of openb's pods on few GPUs, with their shares and with whole GPUs."""
    from interlane import wiring
    from interlane.sim.compare import compare

    trace = wiring.any_trace(data_file(setting, PODS))
    traces = {"shares": trace, "whole GPUs": _without_shares(trace)}
    names = [(gpus, how) for gpus in POOLS for how in traces]
    experiments = [_experiment(traces[how], gpus, setting.seed) for gpus, how in names]
    found = dict(zip(names, compare(experiments, setting.processes), strict=True))
    waits_s = {name: _number(found[name]["mean_wait_s"]) for name in names}
    for gpus in POOLS:
        told = f"{waits_s[gpus, 'whole GPUs']:,.0f} with whole GPUs"
        what = f"played on {gpus} GPUs: mean wait with shares, s"
        yield figure(what, round(waits_s[gpus, "shares"]), told)
    yield claim(
        "played: shares shorten the mean wait at every size",
        all(waits_s[gpus, "shares"] < waits_s[gpus, "whole GPUs"] for gpus in POOLS),
        "The kernel would not use the room that sharing leaves.",
    )


def _without_shares(trace: "Trace") -> "Trace":
    from dataclasses import replace

    import polars as pl

    return replace(trace, frame=trace.frame.with_columns(gpu_milli=pl.lit(1000, pl.Int64)))


def _experiment(trace: "Trace", gpus: int, seed: int) -> "Experiment":
    from interlane import wiring
    from interlane.sim.experiment import Experiment

    choice = wiring.choice_of(wiring.PolicyWords("fifo", "best-fit"))
    return Experiment(on_any_type(trace), cluster_of(gpus), choice, seed=seed)


def cluster_of(gpus: int) -> "Cluster":
    """Return so many GPUs on machines with eight, and as many CPUs a GPU as openb has."""
    from interlane.model import MILLI, Cluster, Machine, MachineId
    from interlane.traces.clusters import ENDLESS_GPU_MIB, ENDLESS_MIB

    machines = tuple(
        Machine(
            MachineId(f"m{number:02}"),
            "G2",
            8,
            round(8 * POOL_CPUS * MILLI),
            ENDLESS_MIB,
            ENDLESS_GPU_MIB,
        )
        for number in range(gpus // 8)
    )
    return Cluster(f"{gpus} GPUs", machines)


def on_any_type(trace: "Trace") -> "Trace":
    """Return the pods that 8 GPUs and their CPUs can hold, on whatever type."""
    from dataclasses import replace

    import polars as pl

    fits = (pl.col("gpus") > 0) & (pl.col("cpu_milli") <= 8 * POOL_CPUS * 1000)
    return replace(trace, frame=trace.frame.filter(fits).with_columns(gpu_types=pl.lit("")))


def _number(value: object) -> float:
    assert isinstance(value, float | int)
    return float(value)


# -- PAI's jobs, as counted -----------------------------------------------------------


def _classes(setting: Setting) -> list[Row]:
    import polars as pl

    classes = pl.read_csv(data_file(setting, CLASSES))
    work_s = (classes["count"] * classes["duration_avg"]).to_numpy()
    asked = classes["num_gpu"].to_numpy()
    counted = int(classes["count"].sum())
    jobs = pl.read_csv(data_file(setting, JOBS)).filter(pl.col("num_gpu") > 0)
    each, instances = jobs["num_gpu"].to_numpy(), jobs["num_inst"].to_numpy()
    ran_s = jobs["duration"].to_numpy()
    held_s = instances * ran_s
    by_instance = _saved(each, instances)
    by_time = _saved(each, held_s)
    per_job = _saved(each * instances, ran_s)
    lowest = _saved(asked, work_s)
    hours = float((work_s * asked).sum()) / HOUR_S
    return [
        checked(
            "GPU jobs in the classes",
            counted,
            "84,879 in the file's name",
            counted == int(CLASSES.split("_")[-1].removesuffix("jobs.csv")),
            "Classes would be read twice or not at all.",
        ),
        figure("GPU hours that they ask for", round(hours)),
        figure(
            "GPU time saved, %, 84,879 jobs, each rounded up as a whole (a lower bound)",
            round(lowest, 1),
            SAVED,
        ),
        figure(
            "GPU time saved, %, 810 real jobs, instance by instance", round(by_time, 1), SAVED
        ),
        figure(
            "GPUs saved, %, the same jobs, if all ran at once", round(by_instance, 1), SAVED
        ),
        checked(
            "GPU time saved, %, the same jobs, each rounded up as a whole",
            round(per_job, 1),
            None,
            per_job <= by_time,
            "Rounding up whole jobs would not be a lower bound.",
        ),
        claim(
            "what is asked for in parts runs shorter than what is asked for whole",
            bool(_mean(ran_s, instances, each < 1) < _mean(ran_s, instances, each >= 1)),
            "Counting instances and counting time would come to the same.",
        ),
    ]


def _mean(
    values: "NDArray[np.float64]", weights: "NDArray[np.int64]", mask: "NDArray[np.bool_]"
) -> float:
    import numpy as np

    return float(np.average(values[mask], weights=weights[mask]))


def _saved(asked: "NDArray[np.float64]", weight: "NDArray[np.float64]") -> float:
    """Return the percentage that parts of GPUs save over whole ones, so weighted."""
    import numpy as np

    return float(100 * (1 - (weight * asked).sum() / (weight * np.ceil(asked)).sum()))


SHARING_OPENB: Final = Reproduction(
    "sharing-openb",
    "GPUs that openb's 6,203 real GPU pods need at every hour by their own starts and ends, "
    "with shares packed and with whole GPUs; and their waits when they are played on few GPUs.",
    "Sharing would be counted otherwise than it happens.",
    _openb,
    teaches="On openb, sharing saves about an eighth of the GPUs at an hour, not the half that "
    "the paper has for PAI: who asks for parts of a GPU holds them for a short time.",
    published=("interlane.reproduce.real_sharing:SAVED",),
)
SHARING_CLASSES: Final = Reproduction(
    "sharing-classes",
    "What sharing saves for the 84,879 real GPU jobs of PAI's estimate file, by request class, "
    "and for 810 real jobs whose instances are known.",
    "Real requests would be read or counted wrongly.",
    _classes,
    teaches="Half is saved only if instances are counted; of GPU time, PAI's real jobs save "
    "about a quarter, because those who ask for parts run shorter.",
    published=("interlane.reproduce.real_sharing:SAVED",),
)
