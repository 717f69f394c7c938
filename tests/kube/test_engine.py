"""The engine on a real API server: what it tells, what it writes, what it takes up."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from interlane.engines.kubernetes.config import server_of
from interlane.engines.kubernetes.engine import KubernetesEngine, KubeSettings
from interlane.engines.kubernetes.manifests import PodSettings
from interlane.live.files.job import JobSpec, Origin, read_spec, request_of
from interlane.live.port import (
    Attempt,
    Begun,
    Ended,
    Launch,
    MachineGone,
    NeverBegan,
    Report,
    Stop,
    Wanted,
    Withdrawn,
)
from interlane.model import Cluster, JobId, MachineId, Occupied, Placement, Spot, TakenGpu
from interlane.testing.kube_api import KubeApi
from interlane.testing.kube_cluster import KubeCluster
from interlane.testing.kube_kubelets import PlayedKubelets
from interlane.testing.kube_world import NODES, PODS, labelled, node_document, pod_document
from interlane.testing.waiting import until

Kind = TypeVar("Kind")
A = MachineId("a")


class Site:
    """A cluster of one or two nodes, its kubelets, and engines on it."""

    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster = cluster
        self.api: KubeApi = cluster.api()
        self.kubelets = PlayedKubelets(self.api)
        self.kubelets.start()
        self.machines = [labelled("a", 4, 8_000), labelled("b", 2, 8_000)]
        for machine in self.machines:
            self.api.post(NODES, node_document(machine))
            self.kubelets.add_node(machine.id)
        self.told: list[Report] = []
        self.engines: list[KubernetesEngine] = []
        self._serials = iter(range(1, 1_000))

    def engine(self, **settings: Any) -> KubernetesEngine:  # noqa: ANN401
        made = KubernetesEngine(
            server_of(self.cluster.kubeconfig()),
            KubeSettings(PodSettings("default", image="played"), **settings),
        )
        self.engines.append(made)
        made.start(self.told.append)
        return made

    def pod(self, name: str, cpu: str = "1", **more: Any) -> dict[str, Any]:  # noqa: ANN401
        annotations = more.pop("annotations", {})
        labels = more.pop("labels", {})
        made = pod_document(name, cpu=cpu, **{"schedulerName": "interlane", **more})
        made["metadata"] |= {"annotations": annotations, "labels": labels}
        return self.api.post(PODS, made)

    def said(self, kind: type[Kind], which: Callable[[Kind], bool] = lambda one: True) -> Kind:
        """Wait for a report."""

        def found() -> list[Kind]:
            return [one for one in list(self.told) if isinstance(one, kind) and which(one)]

        until(found, f"a report {kind.__name__} in {self.told}")
        return found()[0]

    def launch(self, wanted: Wanted | JobSpec, *spots: Spot, number: int = 1) -> Launch:
        job = wanted.job if isinstance(wanted, Wanted) else wanted
        key = wanted.key if isinstance(wanted, Wanted) else None
        serial = next(self._serials)
        request = request_of(job, Cluster("test", tuple(self.machines)), spans_machines=True)
        return Launch(
            Attempt(JobId(f"{job.name}-{serial}"), number, f"{serial:016x}"),
            job,
            request,
            Placement(spots),
            10.0,
            Origin(serial, "ann", 1.0, key),
        )

    def read(self, name: str) -> dict[str, Any]:
        return self.api.get(f"{PODS}/{name}")

    def message(self, name: str) -> str:
        conditions = (self.read(name).get("status") or {}).get("conditions") or ()
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")


@pytest.fixture
def site(cluster: KubeCluster) -> Iterator[Site]:
    made = Site(cluster)
    try:
        yield made
    finally:
        for engine in made.engines:
            engine.close()
        made.kubelets.close()


def test_one_call_binds_a_pod_and_writes_where_its_gpu_is(site: Site) -> None:
    engine = site.engine()
    site.pod("half", annotations={"interlane.dev/gpu-fraction": "0.5"})
    wanted = site.said(Wanted)
    assert wanted.user == "default"
    engine.begin(site.launch(wanted, Spot(A, (2,))))
    site.said(Begun)
    pod = site.read("half")
    assert pod["spec"]["nodeName"] == "a"
    said = pod["metadata"]["annotations"]
    assert said["interlane.dev/gpu-index"] == "2"
    assert said["interlane.dev/gpu-milli"] == "500"
    until(lambda: site.kubelets.placements(), "the pod runs")
    assert [one.spots for one in site.kubelets.placements().values()] == [(Spot(A, (2,)),)]


def test_what_users_write_where_the_scheduler_writes_is_overwritten(site: Site) -> None:
    engine = site.engine()
    site.pod(
        "sly",
        annotations={"interlane.dev/gpu-index": "3", "interlane.dev/gpu-milli": "1000"},
    )
    engine.begin(site.launch(site.said(Wanted), Spot(A)))
    site.said(Begun)
    said = site.read("sly")["metadata"]["annotations"]
    assert (said["interlane.dev/gpu-index"], said["interlane.dev/gpu-milli"]) == ("", "0")


def test_a_pod_that_binds_itself_and_claims_a_gpu_is_not_believed(site: Site) -> None:
    honest = site.engine()
    site.pod("honest", annotations={"interlane.dev/gpu-fraction": "0.5"})
    launch = site.launch(site.said(Wanted), Spot(A, (1,)))
    honest.begin(launch)
    site.said(Begun)
    stolen = site.read("honest")["metadata"]["annotations"]
    site.pod("thief", annotations=stolen, nodeName="a")
    honest.close()
    found = site.engine().observe([]).found
    assert [one.attempt for one in found] == [launch.attempt]
    assert len(found[0].placement.spots) == 1


def test_a_gang_starts_when_its_last_pod_is_there_and_all_at_once(site: Site) -> None:
    engine = site.engine()
    gang = {"interlane.dev/gang": "ring", "interlane.dev/gang-size": "3"}
    for number in range(2):
        site.pod(f"ring-{number}", annotations=gang)

    def is_explained() -> bool:
        engine.explain_gangs()
        return "2 of 3 pods" in site.message("ring-0")

    until(is_explained, "why it waits")
    assert not any(isinstance(one, Wanted) for one in site.told)
    site.pod("ring-2", annotations=gang)
    wanted = site.said(Wanted)
    assert wanted.job.gang.nodes == 3
    engine.begin(site.launch(wanted, Spot(A, instances=2), Spot(MachineId("b"))))
    site.said(Begun)
    assert [site.read(f"ring-{number}")["spec"]["nodeName"] for number in range(3)] == [
        "a",
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("annotations", "asked", "said"),
    [
        ({"interlane.dev/gpu-fraction": "7"}, {}, "above 0 and at most 1"),
        ({"gpu-fraction": "0.5"}, {"nvidia.com/gpu": "1"}, "two ways that do not agree"),
        ({"interlane.dev/gang": "g"}, {}, "how many pods the gang has"),
        ({"interlane.dev/priority": "high"}, {}, "must be 0 to 100"),
    ],
)
def test_a_bad_pod_is_told_what_to_change_and_stops_nobody(
    site: Site, annotations: dict[str, str], asked: dict[str, str], said: str
) -> None:
    site.engine()
    bad = pod_document("bad", schedulerName="interlane")
    bad["metadata"]["annotations"] = annotations
    bad["spec"]["containers"][0]["resources"] = {"limits": asked, "requests": asked}
    site.api.post(PODS, bad)
    until(lambda: said in site.message("bad"), "a condition")
    events = "/api/v1/namespaces/default/events"
    until(lambda: any(said in one["message"] for one in site.api.items(events)), "an event")
    site.pod("good")
    assert site.said(Wanted).job.name == "good"


def test_another_server_takes_up_what_runs_from_the_cluster_alone(site: Site) -> None:
    first = site.engine()
    site.pod("train", annotations={"gpu-fraction": "0.25", "interlane.dev/expected": "2h"})
    launch = site.launch(site.said(Wanted), Spot(A, (3,)))
    first.begin(launch)
    site.said(Begun)
    job = site.launch(read_spec({"name": "j", "run": "true"}), Spot(MachineId("b")))
    first.begin(job)
    site.said(Begun, lambda one: one.attempt == job.attempt)
    first.close()
    seen = site.engine().observe([])
    found = {one.attempt: one for one in seen.found}
    assert found.keys() == {launch.attempt, job.attempt}
    assert found[launch.attempt].placement == launch.placement
    assert found[launch.attempt].job == launch.job
    assert found[launch.attempt].origin == launch.origin
    assert found[job.attempt].job == job.job
    assert found[job.attempt].placement == job.placement
    assert seen.serial == job.origin.serial
    assert [one.key for one in seen.wanted] == [launch.origin.key]


def test_a_job_from_our_api_runs_and_its_end_is_told(site: Site) -> None:
    engine = site.engine()
    job = read_spec(
        {"name": "pair", "run": "echo hi", "gang": {"nodes": 2}, "resources": {"cpu": 1}}
    )
    launch = site.launch(job, Spot(A), Spot(MachineId("b")))
    engine.begin(launch)
    engine.begin(launch)  # asked twice
    site.said(Begun)
    until(lambda: len(site.kubelets.running) == 2, "both pods run")
    assert set(site.kubelets.begun().values()) == {1}
    site.kubelets.finish(launch.attempt, 0)
    assert site.said(Ended) == Ended(launch.attempt, 0)


def test_a_gang_of_ours_ends_as_a_whole_when_one_pod_fails(site: Site) -> None:
    engine = site.engine()
    job = read_spec({"name": "pair", "run": "x", "gang": {"nodes": 2}, "resources": {"cpu": 1}})
    launch = site.launch(job, Spot(A), Spot(MachineId("b")))
    engine.begin(launch)
    until(lambda: len(site.kubelets.running) == 2, "both pods run")
    site.kubelets.kill(min(site.kubelets.running), 9)
    assert site.said(Ended).exit_code == 9
    assert not site.kubelets.running


def test_a_stop_respects_the_disruption_budget_of_somebody_elses_pod(site: Site) -> None:
    engine = site.engine()
    site.pod("kept", labels={"app": "kept"})
    launch = site.launch(site.said(Wanted), Spot(A))
    engine.begin(launch)
    until(lambda: site.kubelets.running, "the pod runs")
    budgets = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets"
    budget = {
        "metadata": {"name": "kept"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    site.api.post(budgets, budget)
    until(
        lambda: "disruptionsAllowed" in (site.api.get(f"{budgets}/kept").get("status") or {}),
        "the budget counts",
    )
    engine.stop(launch.attempt, Stop.GRACEFUL)
    events = "/api/v1/namespaces/default/events"
    until(
        lambda: any("disruption budget" in one["message"] for one in site.api.items(events)),
        "an event that says what is in the way",
    )
    assert site.kubelets.running
    site.api.delete(f"{budgets}/kept")
    assert site.said(Ended).why == "stopped"


def test_a_stopped_pod_of_somebody_else_is_withdrawn(site: Site) -> None:
    engine = site.engine()
    site.pod("p")
    launch = site.launch(site.said(Wanted), Spot(A))
    engine.begin(launch)
    until(lambda: site.kubelets.running, "the pod runs")
    engine.stop(launch.attempt, Stop.GRACEFUL)
    assert site.said(Withdrawn).key == launch.origin.key
    assert site.said(Ended).why == "stopped"


def test_pods_of_others_and_daemons_are_occupied_capacity(site: Site) -> None:
    daemon = pod_document("daemon", cpu="250m", nodeName="a")
    site.api.post(PODS, daemon)
    site.api.post(
        PODS,
        pod_document("theirs", cpu="1", nodeName="a")
        | {
            "spec": {
                "nodeName": "a",
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}},
                    }
                ],
            }
        },
    )
    (taken,) = site.engine().observe([]).occupied
    assert taken == Occupied(A, 1250, gpus=(TakenGpu(3, 1000),))


def test_a_lost_node_takes_its_attempts_along(site: Site) -> None:
    engine = site.engine()
    launch = site.launch(read_spec({"name": "j", "run": "x"}), Spot(A))
    engine.begin(launch)
    until(lambda: site.kubelets.running, "it runs")
    site.kubelets.lose_node("a")
    site.api.delete(f"{NODES}/a")
    assert site.said(MachineGone).machine_id == A
    ended = site.said(Ended)
    assert ended.was_lost
    assert ended.cause == "Node a is gone."


def test_an_attempt_that_nobody_has_begun_never_begins(site: Site) -> None:
    engine = site.engine()
    launch = site.launch(read_spec({"name": "j", "run": "x"}), Spot(A))
    (sight,) = engine.observe([launch.attempt]).attempts
    assert isinstance(sight, NeverBegan)
    engine.begin(launch)
    site.said(NeverBegan)
    assert not site.api.items("/apis/batch/v1/namespaces/default/jobs")


def test_only_one_server_leads_and_the_next_follows_at_once(site: Site) -> None:
    first = site.engine(identity="first")
    waits: list[str] = []
    second = KubernetesEngine(
        server_of(site.cluster.kubeconfig()),
        KubeSettings(PodSettings("default", image="played"), identity="second"),
    )
    site.engines.append(second)
    thread = threading.Thread(target=lambda: second.lead(waits.append))
    thread.start()
    until(lambda: waits == ["first"], "the second waits")
    first.close()
    thread.join(60)
    assert not thread.is_alive()
    assert second.leads
