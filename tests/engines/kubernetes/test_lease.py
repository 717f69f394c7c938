"""Who leads, with clocks that differ and servers that fall asleep."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from interlane.engines.kubernetes.client import ApiError, Document, KubeClient
from interlane.engines.kubernetes.lease import Leadership

Answer = TypeVar("Answer")
LEASE_S = 15.0


class Leases(KubeClient):
    """One lease, as an API server keeps it: a change must name the version it changes."""

    def __init__(self) -> None:
        self.lease: Document | None = None
        self.version = 0
        self.is_down = False

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kind: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Document:
        if self.is_down:
            raise ApiError(0, "no answer", "down")
        if method == "GET":
            if self.lease is None:
                raise ApiError(404, "NotFound", "none")
            return {
                "metadata": {"annotations": {}, **self.lease["metadata"]},
                "spec": dict(self.lease["spec"]),
            }
        assert body is not None
        named = body["metadata"].get("resourceVersion")
        if (method == "POST") != (self.lease is None) or (
            method == "PUT" and named != f"{self.version}"
        ):
            raise ApiError(409, "Conflict", "changed")
        self.version += 1
        meta = {**body["metadata"], "resourceVersion": f"{self.version}"}
        self.lease = {"metadata": meta, "spec": dict(body["spec"])}
        return self.lease


class Hands:
    """A clock that is set by hand."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def __call__(self) -> float:
        return self.at_s


def done(work: "Coroutine[Any, Any, Answer]") -> Answer:
    return asyncio.run(work)


def server(leases: Leases, name: str, clock: Hands) -> Leadership:
    return Leadership(leases, "ns", "interlane", name, LEASE_S, clock=clock)


def test_the_second_waits_for_as_long_as_the_lease_lasts_by_its_own_clock() -> None:
    leases, here, there = Leases(), Hands(1_000.0), Hands(-50_000.0)  # hours apart
    first, second = server(leases, "first", here), server(leases, "second", there)
    assert done(first._try()) is None
    assert done(second._try()) == "first"
    there.at_s += LEASE_S - 1
    assert done(second._try()) == "first"
    there.at_s += 2
    assert done(second._try()) is None
    assert second.epoch == first.epoch + 1


def test_a_renewal_makes_the_others_wait_anew() -> None:
    leases, here, there = Leases(), Hands(0.0), Hands(0.0)
    first, second = server(leases, "first", here), server(leases, "second", there)
    done(first._try())
    done(second._try())
    there.at_s += LEASE_S - 1
    done(first._renew())
    assert done(second._try()) == "first"
    there.at_s += LEASE_S - 1
    assert done(second._try()) == "first"


def test_a_leader_stops_writing_before_anybody_else_may_lead() -> None:
    leases, here = Leases(), Hands(0.0)
    first = server(leases, "first", here)
    done(first._try())
    leases.is_down = True
    here.at_s = LEASE_S * 0.6
    assert first.may_write
    here.at_s = LEASE_S * 0.7  # a request of a third of the lease still ends within it
    assert not first.may_write


def test_a_leader_that_slept_finds_another_and_stops() -> None:
    leases, here, there = Leases(), Hands(0.0), Hands(0.0)
    first, second = server(leases, "first", here), server(leases, "second", there)
    done(first._try())
    done(second._try())
    there.at_s += LEASE_S + 1
    assert done(second._try()) is None
    done(first._renew())  # its clock stood still meanwhile
    assert not first.may_write
    assert second.may_write


def test_two_that_are_fast_alike_do_not_both_lead() -> None:
    leases, clock = Leases(), Hands(0.0)
    first, second = server(leases, "first", clock), server(leases, "second", clock)

    async def both() -> list[str | None]:
        return list(await asyncio.gather(first._try(), second._try()))

    assert sorted(done(both()), key=str) in ([None, "another server"], [None, "first"])
    assert first.may_write is not second.may_write


def test_a_released_lease_is_taken_at_once() -> None:
    leases, clock = Leases(), Hands(0.0)
    first, second = server(leases, "first", clock), server(leases, "second", clock)
    done(first._try())
    first.note = lambda: {"interlane.dev/serial": "41"}
    done(first.release())
    assert not first.may_write
    assert done(second._try()) is None
    assert second.annotations["interlane.dev/serial"] == "41"


def test_a_leader_that_cannot_renew_in_time_says_once_that_it_is_over() -> None:
    leases, here, told = Leases(), Hands(0.0), list[str]()
    first = Leadership(leases, "ns", "interlane", "first", 0.1, told.append, clock=here)

    async def led() -> None:
        assert await first._try() is None
        keeping = asyncio.ensure_future(first.keep())
        await asyncio.sleep(0.05)
        assert not first.is_over.is_set()
        leases.is_down, here.at_s = True, 1.0
        await asyncio.wait_for(first.is_over.wait(), 60)
        await keeping

    done(led())
    assert len(told) == 1
    assert not first.may_write
