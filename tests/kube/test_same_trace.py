"""The same trace through simulator and cluster gives the same placements in the same order."""

from functools import partial
from pathlib import Path
from random import Random

from interlane.engines.kubernetes.affinity import FitRules
from interlane.engines.kubernetes.pods import ask_of, job_of
from interlane.live.files.job import request_of
from interlane.metrics.log import LogEvent
from interlane.model import Cluster, Job, JobId, Placement
from interlane.testing.build import play
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_scheduled import ScheduledCluster, make_scheduler
from interlane.testing.kube_world import PODS, labelled, pod_document
from interlane.testing.waiting import until

COUNT = 30


def pods(rng: Random) -> list[dict[str, object]]:
    """Return pods that ask for shares, whole GPUs, several or none."""
    made = []
    for number in range(COUNT):
        cpu = rng.choice(("500m", "1", "4"))
        pod = pod_document(f"pod-{number:03d}", cpu=cpu, schedulerName="interlane")
        what = rng.random()
        if what < 0.5:
            share = rng.choice(("0.25", "0.5", "0.46"))
            pod["metadata"]["annotations"] = {"interlane.dev/gpu-fraction": share}
        elif what < 0.9:
            asked = {"cpu": cpu, "nvidia.com/gpu": rng.choice(("1", "1", "2"))}
            pod["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
        made.append(pod)
    return made


def test_a_trace_is_placed_alike_in_virtual_time_and_on_a_cluster(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    rng = Random(18)
    machines = [labelled(f"node-{number}", 4, 8_000) for number in range(2)]
    asked = pods(rng)
    there = Cluster("test", tuple(machines))
    rules = FitRules()
    jobs = []
    for number, pod in enumerate(asked):
        spec = job_of([(pod, ask_of(pod, rules, ()))], f"pod-{number:03d}")
        request = request_of(spec, there, spans_machines=True)
        jobs.append(Job(JobId(f"pod-{number:03d}"), request, 10.0 * number, number))
    lengths_s = [rng.randrange(20, 400) + 0.1 + number / 1000 for number in range(COUNT)]
    log = play(jobs, lengths_s, make_scheduler(there, ()))
    expected: list[tuple[str, Placement]] = []
    with ScheduledCluster(cluster, tmp_path, machines) as scheduled:
        for line in log.lines():
            name = log.jobs[line.subject].id
            if line.kind is LogEvent.SUBMITTED:
                scheduled.api.post(PODS, asked[line.subject])
                until(partial(scheduled.knows, name), f"{name} is known")
            elif line.kind is LogEvent.STARTED:
                assert line.placement is not None
                expected.append((name, line.placement))
                until(partial(scheduled.runs, name), f"{name} runs")
            elif line.kind is LogEvent.FINISHED:
                scheduled.finish(name)
        assert len(expected) == COUNT
        assert scheduled.placed() == expected
