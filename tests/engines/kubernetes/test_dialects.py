"""What pods ask for, in the words of several schedulers, and as Kubernetes adds it up."""

from typing import Any

import pytest

from interlane.engines.kubernetes.affinity import FitRules, tolerations_of
from interlane.engines.kubernetes.dialects import GpuAsk, gpus_of
from interlane.engines.kubernetes.pods import ask_of, job_of
from interlane.engines.kubernetes.requests import asked_by
from interlane.model import InvalidInput


def pod(
    *containers: dict[str, str],
    inits: tuple[dict[str, str], ...] = (),
    sidecars: tuple[dict[str, str], ...] = (),
    annotations: dict[str, str] | None = None,
    **spec: object,
) -> dict[str, Any]:
    def made(name: str, asked: dict[str, str], **more: str) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": {"requests": asked}, **more}

    first = [made(f"s{at}", one, restartPolicy="Always") for at, one in enumerate(sidecars)]
    return {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "annotations": annotations or {},
        },
        "spec": {
            "initContainers": [
                *first,
                *(made(f"i{at}", one) for at, one in enumerate(inits)),
            ],
            "containers": [made(f"c{at}", one) for at, one in enumerate(containers)],
            **spec,
        },
    }


def test_containers_are_summed_and_the_largest_init_container_counts() -> None:
    one = pod({"cpu": "500m"}, {"cpu": "1"}, inits=({"cpu": "1200m"}, {"cpu": "4"}))
    assert asked_by(one)["cpu"] == 4
    two = pod({"cpu": "3"}, {"cpu": "2"}, inits=({"cpu": "4"},))
    assert asked_by(two)["cpu"] == 5


def test_a_side_car_counts_beside_whatever_comes_after_it() -> None:
    # 1 for the side-car and 4 for the init container beside it; 1 + 2 while the main one runs.
    assert (
        asked_by(pod({"cpu": "2"}, inits=({"cpu": "4"},), sidecars=({"cpu": "1"},)))["cpu"] == 5
    )
    assert (
        asked_by(pod({"cpu": "9"}, inits=({"cpu": "4"},), sidecars=({"cpu": "1"},)))["cpu"]
        == 10
    )


def test_the_overhead_of_a_runtime_class_is_added() -> None:
    assert asked_by(pod({"cpu": "2"}, overhead={"cpu": "250m"}))["cpu"] * 1000 == 2250


@pytest.mark.parametrize(
    ("asked", "annotations", "means"),
    [
        ({}, {}, GpuAsk(0)),
        ({"nvidia.com/gpu": "2"}, {}, GpuAsk(2)),
        ({"nvidia.com/mig-1g.5gb": "1"}, {}, GpuAsk(1, types=("mig-1g.5gb",))),
        ({"interlane.dev/gpu-share": "50"}, {}, GpuAsk(1, 500)),
        ({"interlane.dev/gpu-share": "200"}, {}, GpuAsk(2, 1000)),
        ({}, {"interlane.dev/gpu-fraction": "0.25"}, GpuAsk(1, 250)),
        (
            {},
            {"interlane.dev/gpu-fraction": "0.5", "interlane.dev/gpu-type": "A100, H100"},
            GpuAsk(1, 500, types=("A100", "H100")),
        ),
        ({}, {"gpu-fraction": "0.5"}, GpuAsk(1, 500)),
        ({}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, GpuAsk(2, 500)),
        ({}, {"gpu-memory": "4096"}, GpuAsk(1, None, 4096)),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}, {}, GpuAsk(1, None, 3000)),
        (
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"},
            {},
            GpuAsk(1, 300, 3000),
        ),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "50"}, {}, GpuAsk(2, 500)),
        ({"aliyun.com/gpu-mem": "8"}, {}, GpuAsk(1, None, 8192)),
        (
            {},
            {
                "alibabacloud.com/gpu-milli": "460",
                "alibabacloud.com/gpu-count": "1",
                "alibabacloud.com/gpu-card-model": "V100M16|V100M32",
            },
            GpuAsk(1, 460, types=("V100M16", "V100M32")),
        ),
    ],
)
def test_every_spelling_is_understood(
    asked: dict[str, str], annotations: dict[str, str], means: GpuAsk
) -> None:
    one = pod(asked, annotations=annotations)
    assert gpus_of(one, asked_by(one)) == means


@pytest.mark.parametrize(
    ("asked", "annotations", "said"),
    [
        (
            {},
            {"gpu-fraction": "7"},
            "gpu-fraction is '7', but it must be above 0 and at most 1",
        ),
        ({}, {"interlane.dev/gpu-fraction": "half"}, "gpu-fraction is 'half'"),
        ({}, {"interlane.dev/gpu-fraction": "NaN"}, "gpu-fraction is 'NaN'"),
        ({"nvidia.com/gpu": "1"}, {"gpu-fraction": "0.5"}, "two ways that do not agree"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "130"}, {}, "it must be 1 to 100"),
        ({"nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-2g.10gb": "1"}, {}, "of 2 profiles"),
        (
            {"interlane.dev/gpu-share": "150"},
            {"interlane.dev/gpu-count": "1"},
            "gpu-share is 150",
        ),
        ({"nvidia.com/gpu": "100"}, {}, "at most 62"),
        ({}, {"alibabacloud.com/gpu-milli": "1001"}, "it must be 1 to 1000"),
        ({}, {"gpu-memory": "-3"}, "whole number above 0"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    asked: dict[str, str], annotations: dict[str, str], said: str
) -> None:
    one = pod(asked, annotations=annotations)
    with pytest.raises(InvalidInput, match=said):
        gpus_of(one, asked_by(one))


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must read like 500m"):
        asked_by(pod({"cpu": "much"}))
    with pytest.raises(InvalidInput, match="must be 0 to"):
        asked_by(pod({"cpu": "-3"}))


NODES = {
    "a": {"zone": "1", "disk": "ssd", "size": "5"},
    "b": {"zone": "2", "disk": "hdd"},
    "c": {"zone": "3", "empty": ""},
}


def fitting(affinity: dict[str, Any] | None = None, **spec: object) -> set[str]:
    rules = FitRules()
    made = pod({}, affinity=affinity or {})
    made["spec"] |= spec
    asked = rules.selectors_of(made)
    found = set()
    for name, labels in NODES.items():
        node = {"metadata": {"name": name, "labels": labels}}
        has = {**labels, **rules.labels_of(node)}
        if asked.items() <= has.items():
            found.add(name)
    return found


def term(
    *expressions: tuple[str, str, list[str]], kind: str = "matchExpressions"
) -> dict[str, Any]:
    return {
        kind: [
            {"key": key, "operator": how, "values": values} for key, how, values in expressions
        ]
    }


@pytest.mark.parametrize(
    ("terms", "fit"),
    [
        ([term(("zone", "In", ["1", "2"]))], {"a", "b"}),
        ([term(("zone", "NotIn", ["1"]))], {"b", "c"}),
        ([term(("disk", "Exists", []))], {"a", "b"}),
        ([term(("disk", "DoesNotExist", []))], {"c"}),
        ([term(("size", "Gt", ["4"]))], {"a"}),
        ([term(("size", "Lt", ["4"]))], set()),
        ([term(("zone", "In", ["1", "2"]), ("disk", "In", ["hdd"]))], {"b"}),
        ([term(("zone", "In", ["1"])), term(("zone", "In", ["3"]))], {"a", "c"}),
        ([term(("metadata.name", "In", ["c"]), kind="matchFields")], {"c"}),
        ([{}], set()),
    ],
)
def test_required_node_affinity_means_what_it_means_in_kubernetes(
    terms: list[dict[str, Any]], fit: set[str]
) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert fitting({"nodeAffinity": required}) == fit


def test_node_selectors_work_with_and_without_a_value() -> None:
    assert fitting(nodeSelector={"disk": "ssd"}) == {"a"}
    assert fitting(nodeSelector={"empty": ""}) == {"c"}


def test_rules_about_other_pods_are_refused_rather_than_broken() -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]}
    with pytest.raises(InvalidInput, match="podAntiAffinity requires something of other pods"):
        fitting({"podAntiAffinity": required})


def test_tolerations_name_a_value_or_any() -> None:
    taints = [("gpu", "yes"), ("team", "red")]
    asked = [{"key": "gpu", "operator": "Exists"}, {"key": "team", "value": "red"}]
    assert tolerations_of(pod({}, tolerations=asked), taints) == {"gpu": "*", "team": "red"}
    everything = [{"operator": "Exists"}]
    assert tolerations_of(pod({}, tolerations=everything), taints) == {"gpu": "*", "team": "*"}
    by_admission = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
    assert tolerations_of(pod({}, tolerations=by_admission), taints) == {}


def test_a_gang_of_unlike_pods_is_a_job_of_tasks() -> None:
    rules = FitRules()
    pods = [pod({"cpu": "1"}), *(pod({"cpu": "2", "nvidia.com/gpu": "1"}) for _ in range(3))]
    job = job_of([(one, ask_of(one, rules, ())) for one in pods], "mpi")
    assert [(task.count, task.resources.cpu) for task in job.tasks] == [
        (1, 1),
        (3, 2),
    ]


def test_priorities_keep_the_order_of_priority_classes() -> None:
    values = [-1000, 0, 10, 1_000, 100_000, 1_000_000_000]
    rules = FitRules()
    found = []
    for value in values:
        one = pod({"cpu": "1"}, priority=value)
        found.append(job_of([(one, ask_of(one, rules, ()))], "p").priority)
    assert found == sorted(set(found))
    assert found[1] == 50
    assert found[-1] == 100
