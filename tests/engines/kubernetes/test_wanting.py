"""Pods that wait, without a cluster: what is asked for again, and under which key."""

from typing import Any

from interlane.engines.kubernetes.affinity import FitRules
from interlane.engines.kubernetes.wanting import WaitingPods


def pod(name: str, **annotations: str) -> dict[str, Any]:
    said = {f"interlane.dev/{key.replace('_', '-')}": one for key, one in annotations.items()}
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{name}",
            "annotations": said,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"schedulerName": "interlane", "containers": [{"name": "c", "image": "i"}]},
    }


def waiting() -> WaitingPods:
    return WaitingPods(FitRules(), tuple, lambda gang: None, lambda name, said: None)


def test_what_was_refused_is_wanted_again_under_a_key_that_was_never_used() -> None:
    pods = waiting()
    (first,) = pods.add(pod("a"))
    pods.refused(first.key)
    (second,) = pods.refused_again()
    pods.refused(second.key)
    (third,) = pods.refused_again()
    assert len({first.key, second.key, third.key}) == 3
    assert first.job == second.job == third.job
    assert set(pods.jobs) == {third.key}
    assert pods.refused_again() == []


def test_a_refused_gang_is_wanted_again_as_a_whole() -> None:
    pods = waiting()
    assert pods.add(pod("a", gang="g", gang_size="2")) == []
    (first,) = pods.add(pod("b", gang="g", gang_size="2"))
    pods.refused(first.key)
    (again,) = pods.refused_again()
    assert [one.name for one in pods.jobs[again.key].pods] == ["a", "b"]
    assert pods.remove("uid-a") == again.key
    assert pods.jobs == {}


def test_a_pod_that_is_gone_is_not_wanted_again() -> None:
    pods = waiting()
    (wanted,) = pods.add(pod("a"))
    pods.refused(wanted.key)
    assert pods.remove("uid-a") == wanted.key
    assert pods.refused_again() == []


def test_what_was_never_wanted_cannot_be_refused() -> None:
    pods = waiting()
    pods.refused("nobody")
    assert pods.refused_again() == []


def test_a_pod_that_contradicts_its_gang_leaves_the_others_waiting() -> None:
    pods = waiting()
    assert pods.add(pod("a", gang="g", gang_size="2")) == []
    assert pods.add(pod("odd", gang="g", gang_size="3")) == []
    (gang,) = pods.gangs()
    assert pods.short_of(gang) == (1, 2)
    (wanted,) = pods.add(pod("b", gang="g", gang_size="2"))
    assert [one.name for one in pods.jobs[wanted.key].pods] == ["a", "b"]
