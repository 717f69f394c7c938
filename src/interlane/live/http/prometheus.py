"""Figures for Prometheus, read from the view when they are asked for."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from interlane import __version__
from interlane.live.functions.colocation import ComparedSlowdown
from interlane.live.functions.figures import BUCKETS_S
from interlane.live.functions.status import FunctionStatus
from interlane.live.measure.occupancy import DeviceUse
from interlane.live.measure.totals import WAIT_BUCKETS_S
from interlane.live.view import View
from interlane.model import MILLI
from interlane.model.lifecycle import JobState

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST


def page(
    view: View,
    functions: Sequence[FunctionStatus],
    slowed_jobs: Sequence[tuple[str, ComparedSlowdown]],
) -> bytes:
    """Return the page of figures; ``slowed_jobs`` is what functions cost jobs."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(view))
    registry.register(_FunctionFigures(functions, slowed_jobs))
    return generate_latest(registry)


class _Figures:
    """What there is to see, as figures."""

    def __init__(self, view: View) -> None:
        self._view = view

    def describe(self) -> list[Metric]:
        """Return nothing: names are checked when figures are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every figure."""
        view = self._view
        yield InfoMetricFamily("interlane_build", "This program.", {"version": __version__})
        yield GaugeMetricFamily(
            "interlane_ready", "Whether jobs are taken in.", float(view.is_ready)
        )
        jobs = GaugeMetricFamily("interlane_jobs", "Jobs by state.", labels=["state"])
        for state, count in view.counts().items():
            jobs.add_metric([state.value], count)
        yield jobs
        written = view.last_seq()
        yield CounterMetricFamily("interlane_log_entries", "Entries of the log.", written)
        yield GaugeMetricFamily(
            "interlane_gpu_allocated_ratio",
            "Share of the GPUs that is held.",
            view.held_ratio(),
        )
        told = CounterMetricFamily(
            "interlane_notifications",
            "Notifications by what became of them.",
            labels=["result"],
        )
        for result in ("sent", "failed"):
            told.add_metric([result], view.notified.get(result, 0))
        yield told
        yield from _of_devices(view.devices())
        yield from _of_waits(view)
        yield from _of_users(view)


def _of_devices(devices: Sequence[DeviceUse]) -> Iterator[Metric]:
    """Yield what goes on on devices, and how their jobs get on."""
    for field, name, about in (
        ("busy", "busy_ratio", "Share of the last seconds with an iteration."),
        ("used_bytes", "used_bytes", "Memory that jobs were measured to use."),
        ("booked_bytes", "booked_bytes", "Memory booked for jobs."),
        ("switches_per_s", "switches_per_second", "Hand-overs between jobs."),
    ):
        gauge = GaugeMetricFamily(f"interlane_device_{name}", about, labels=["device"])
        for device in devices:
            value: float | None = getattr(device, field)
            if device.is_shared and value is not None:
                gauge.add_metric([f"{device.machine}:{device.gpu}"], value)
        yield gauge
    slower = GaugeMetricFamily(
        "interlane_job_slowdown_ratio",
        "Time per iteration over what it is alone.",
        labels=["job", "device", "kind"],
    )
    for device in devices:
        for job in device.jobs:
            for kind in ("predicted", "measured"):
                ratio = getattr(job.use, f"{kind}_slowdown", None)
                if ratio is not None:
                    slower.add_metric([job.id, f"{device.machine}:{device.gpu}", kind], ratio)
    yield slower


def _of_waits(view: View) -> Iterator[Metric]:
    """Yield who waits, why, and how long jobs have waited."""
    waiting = {one.id: one for one in view.open_jobs() if one.state is JobState.QUEUED}
    pending = GaugeMetricFamily(
        "interlane_pending_jobs",
        f"Jobs that wait, by the kind of reason; of the first {EXPLAINED} in line.",
        labels=["queue", "reason"],
    )
    reasons = Counter(
        (waiting[job].queue, "none" if refusal is None else refusal.tier.label)
        for job, refusal in view.line(waiting, 0, EXPLAINED)
    )
    for (queue, reason), count in sorted(reasons.items()):
        pending.add_metric([queue, reason], count)
    yield pending
    since_s = min((one.submitted_s for one in waiting.values()), default=None)
    yield GaugeMetricFamily(
        "interlane_longest_wait_seconds",
        "How long the job that waits longest has waited.",
        0.0 if since_s is None else max(0.0, view.now_s() - since_s),
    )
    totals = view.totals.read()
    bounds = [*(f"{bound:g}" for bound in WAIT_BUCKETS_S), "+Inf"]
    histogram = HistogramMetricFamily(
        "interlane_wait_seconds", "From submission to the first start."
    )
    reached = list(accumulate(totals.wait_buckets))
    histogram.add_metric([], list(zip(bounds, reached, strict=True)), totals.wait_sum_s)
    yield histogram
    yield CounterMetricFamily(
        "interlane_restarts", "Starts of jobs that had started before.", totals.restarts
    )


def _of_users(view: View) -> Iterator[Metric]:
    """Yield what each user holds and has held."""
    jobs = GaugeMetricFamily(
        "interlane_user_jobs", "Jobs that have not ended.", labels=["user", "state"]
    )
    held = GaugeMetricFamily(
        "interlane_user_gpus", "GPUs that jobs of a user hold.", labels=["user"]
    )
    counts: Counter[tuple[str, str]] = Counter()
    milli: Counter[str] = Counter()
    for one in view.open_jobs():
        counts[one.user, one.state.value] += 1
        if one.state.holds:
            milli[one.user] += view.asked_milli(one)
    for (user, state), count in sorted(counts.items()):
        jobs.add_metric([user, state], count)
    for user, share in sorted(milli.items()):
        held.add_metric([user], share / MILLI)
    totals = view.totals.read()
    seconds = CounterMetricFamily(
        "interlane_user_gpu_seconds",
        "GPU time that jobs held; counted when they end.",
        labels=["user"],
    )
    for user, gpu_s in sorted(totals.gpu_s.items()):
        seconds.add_metric([user], gpu_s)
    ended = CounterMetricFamily(
        "interlane_jobs_ended", "Jobs that ended.", labels=["user", "state"]
    )
    for (user, state), count in sorted(totals.ended.items()):
        ended.add_metric([user, state], count)
    yield from (jobs, held, seconds, ended)


EXPLAINED: Final = 200
"""Jobs of the queue whose reasons are counted; more would take longer than is worth it."""

_COUNTED: Final = {
    "requests": "Requests.",
    "cold_starts": "Requests that waited for a replica to load.",
    "deadline_misses": "Requests whose deadline passed.",
    "raised": "Requests for which the handler raised.",
    "refused": "Requests that were not taken in.",
    "lost": "Requests whose replica ended.",
    "abandoned": "Requests whose caller went before they were answered.",
    "loads": "Replicas that were loaded or should have been.",
    "failed_loads": "Replicas that could not be loaded.",
    "evicted": "Replicas that made way for jobs.",
}


class _FunctionFigures:
    """How functions are, as figures."""

    def __init__(
        self,
        functions: Sequence[FunctionStatus],
        slowed_jobs: Sequence[tuple[str, ComparedSlowdown]],
    ) -> None:
        self._functions = functions
        self._slowed_jobs = slowed_jobs

    def describe(self) -> list[Metric]:
        """Return nothing: names are checked when figures are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every figure."""
        for name, what in _COUNTED.items():
            counter = CounterMetricFamily(
                f"interlane_function_{name}", what, labels=["function"]
            )
            for one in self._functions:
                counter.add_metric([one.name], getattr(one, name))
            yield counter
        yield self._replicas()
        yield self._latencies()
        yield _slowed(
            "function_slowdown",
            "P99 of what calls take beside jobs, over what it is beside none.",
            ((one.name, found) for one in self._functions for found in one.beside_jobs),
        )
        yield _slowed(
            "job_slowdown_by_functions",
            "Time per iteration beside functions over what it is beside none.",
            self._slowed_jobs,
        )

    def _replicas(self) -> Metric:
        gauge = GaugeMetricFamily(
            "interlane_function_replicas", "Replicas by state.", labels=["function", "state"]
        )
        for one in self._functions:
            states = [replica.state for replica in one.replicas]
            for state in ("loading", "idle", "busy", "leaving"):
                gauge.add_metric([one.name, state], states.count(state))
        return gauge

    def _latencies(self) -> Metric:
        histogram = HistogramMetricFamily(
            "interlane_function_latency_seconds",
            "From taking a request in to its answer.",
            labels=["function"],
        )
        bounds = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
        for one in self._functions:
            reached = list(accumulate(one.latency_buckets))
            histogram.add_metric(
                [one.name], list(zip(bounds, reached, strict=True)), one.latency_sum_s
            )
        return histogram


def _slowed(name: str, about: str, compared: Iterable[tuple[str, ComparedSlowdown]]) -> Metric:
    who = name.partition("_")[0]
    gauge = GaugeMetricFamily(f"interlane_{name}_ratio", about, labels=[who, "device", "kind"])
    for victim, one in compared:
        for kind in ("predicted", "measured"):
            gauge.add_metric([victim, one.device, kind], getattr(one, kind))
    return gauge
