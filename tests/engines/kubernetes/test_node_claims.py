"""Which pod gets which units: decided here, without a kubelet."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.device.inventory import devices_of
from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.node.claims import DeviceClaims, NotOwned, claim_of
from interlane.engines.kubernetes.node.offers import device_of, node_devices, units_on
from interlane.engines.kubernetes.sealing import seal_of

KEY = b"k" * 32
NODE = "here"


def pod(
    uid: str,
    gpus: str = "0",
    milli: int = 500,
    *,
    size: int = 1,
    profile: str = "",
    age: int = 0,
) -> dict[str, Any]:
    said = {
        words.GPU_INDEX: gpus,
        words.GPU_MILLI: str(milli),
        words.GPU_MEMORY_MIB: "0",
        words.SLICE: profile,
        words.RANK: "0",
        words.ATTEMPT: json.dumps({"job": f"job-{uid}", "size": size}),
    }
    said[words.SEAL] = seal_of(KEY, uid, NODE, said)
    return {
        "metadata": {
            "uid": uid,
            "namespace": "default",
            "name": f"pod-{uid}",
            "annotations": said,
            "creationTimestamp": f"2026-01-01T00:00:{age:02}Z",
        },
        "status": {"phase": "Pending"},
    }


def book(*pods: dict[str, Any]) -> DeviceClaims:
    made = DeviceClaims(NODE, KEY)
    for one in pods:
        made.changed(None, one)
    return made


def test_pods_of_one_size_get_theirs_in_the_order_in_which_they_were_bound() -> None:
    claims = book(pod("a", "2"), pod("b", "0"), pod("c", "1", 300))

    first = claims.next(words.SHARE, 50)
    assert first is not None
    assert (first.uid, first.gpus) == ("a", (2,))
    claims.give(first, units_on((2,), 50, [f"2-{at}" for at in range(100)]) or ())

    second, other = claims.next(words.SHARE, 50), claims.next(words.SHARE, 30)
    assert second is not None
    assert other is not None
    assert (second.uid, other.uid) == ("b", "c")
    assert claims.next(words.SHARE, 100) is None


def test_what_a_user_wrote_on_a_pod_gives_it_nothing() -> None:
    forged = pod("a", "0")
    forged["metadata"]["annotations"][words.GPU_INDEX] = "1"
    copied = pod("b")
    copied["metadata"]["uid"] = "c"

    assert claim_of(pod("a"), NODE, KEY) is not None
    assert claim_of(forged, NODE, KEY) is None
    assert claim_of(copied, NODE, KEY) is None
    assert claim_of(pod("a"), "there", KEY) is None
    assert claim_of(pod("a"), NODE, b"other") is None
    assert book(forged, copied).next(words.SHARE, 50) is None


def test_units_on_a_device_of_somebody_else_are_not_given() -> None:
    claims = book(pod("a", "2"))
    claim = claims.next(words.SHARE, 50)
    assert claim is not None

    with pytest.raises(NotOwned, match="owns GPU 2 of here, but the kubelet booked it on 1, 2"):
        claims.give(claim, [*(f"2-{at}" for at in range(49)), "1-0"])
    assert claims.next(words.SHARE, 50) == claim


def test_a_container_starts_only_on_what_its_pod_owns() -> None:
    claims = book(pod("a", "2"))

    claims.check(("default", "pod-a"), ["2-0", "2-7"])
    with pytest.raises(NotOwned, match="was given GPU 1 of here and owns 2"):
        claims.check(("default", "pod-a"), ["1-0"])
    with pytest.raises(NotOwned, match="owns none"):
        claims.check(("default", "pod-b"), ["2-0"])


def test_a_pod_that_is_over_or_gone_claims_nothing() -> None:
    over = pod("a")
    claims = book(pod("a"), pod("b", "1"))
    over["status"]["phase"] = "Failed"
    claims.changed(pod("a"), over)
    claims.changed(pod("b"), None)

    assert claims.next(words.SHARE, 50) is None


def test_what_the_kubelet_gave_out_before_a_restart_is_not_given_again() -> None:
    claims = book(pod("a", "2", age=2), pod("b", "1", age=1))
    claims.in_order_of([pod("a", age=2), pod("b", age=1)])
    claims.holds(("default", "pod-b"), ["1-0"])

    left = claims.next(words.SHARE, 50)
    assert left is not None
    assert left.uid == "a"


def test_pods_that_wait_for_each_other_take_no_turns() -> None:
    assert claim_of(pod("a"), NODE, KEY).takes_turns  # type: ignore[union-attr]
    assert not claim_of(pod("a", size=3), NODE, KEY).takes_turns  # type: ignore[union-attr]
    assert not claim_of(pod("a", "0,1"), NODE, KEY).takes_turns  # type: ignore[union-attr]
    sliced = claim_of(pod("a", profile="1g.5gb"), NODE, KEY)
    assert sliced is not None
    assert (sliced.resource, sliced.units) == ("nvidia.com/mig-1g.5gb", 1)
    assert not sliced.takes_turns


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), unique=True),
    st.sets(st.integers(0, 3), min_size=1),
    st.integers(1, 10),
)
def test_units_are_free_ones_of_the_devices_that_were_named(
    free: list[tuple[int, int]], numbers: set[int], each: int
) -> None:
    available = [f"{device}-{unit}" for device, unit in free]
    found = units_on(sorted(numbers), each, available)

    counts = {number: sum(one == number for one, _ in free) for number in numbers}
    if min(counts.values()) < each:
        assert found is None
    else:
        assert found is not None
        assert set(found) <= set(available)
        assert len(set(found)) == len(found)
        assert {device_of(one) for one in found} == numbers
        assert len(found) == each * len(numbers)


def test_emulated_devices_are_a_hundred_units_each() -> None:
    found = node_devices(devices_of("cpu:2"))

    assert [one.resource for one in found] == [words.SHARE, words.SHARE]
    assert [len(one.units) for one in found] == [100, 100]
    assert {device_of(unit) for unit in found[1].units} == {1}
    assert device_of("x") == device_of("1") == -1
