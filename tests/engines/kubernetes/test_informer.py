"""A copy of the cluster stays true through ended streams, lost versions and repeated news."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlane.engines.kubernetes.client import ApiError, Document, KubeClient
from interlane.engines.kubernetes.informer import Informer


def thing(name: str, version: int) -> Document:
    return {"metadata": {"uid": name, "name": name, "resourceVersion": f"{version}"}}


class Cluster(KubeClient):
    """Objects with a history, of which old parts are forgotten, as etcd compacts them."""

    def __init__(self) -> None:
        self.objects: dict[str, Document] = {}
        self.history: list[tuple[int, str, Document]] = []
        self.version = 1
        self.forgotten = 0
        self.cuts: list[int] = []
        """After how many events streams end."""

    def change(self, name: str) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = thing(name, self.version)
        self.history.append((self.version, kind, self.objects[name]))

    def drop(self, name: str) -> None:
        if name in self.objects:
            self.version += 1
            del self.objects[name]
            self.history.append((self.version, "DELETED", thing(name, self.version)))

    async def items(self, path: str, **query: str) -> tuple[list[Document], str]:
        return list(self.objects.values()), f"{self.version}"

    async def watch(
        self, path: str, version: str, silent_s: float, **query: str
    ) -> AsyncGenerator[Document, None]:
        if int(version) < self.forgotten:
            raise ApiError(410, "Expired", "too old")
        left = self.cuts.pop() if self.cuts else 1_000
        for at, kind, what in list(self.history):
            # A stream may begin with what was seen before.
            if at >= int(version):
                if not left:
                    return
                left -= 1
                yield {"type": kind, "object": what}
        await asyncio.sleep(3_600)


def followed(cluster: Cluster, told: list[tuple[Any, Any]], informer: Informer) -> None:
    """Let an informer run until it knows everything."""

    async def until_known() -> None:
        informer.synced = asyncio.Event()
        task = asyncio.ensure_future(informer.run())
        for _ in range(10_000):
            await asyncio.sleep(0)
            if informer.objects == cluster.objects and not cluster.cuts:
                break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(until_known())


STEPS = st.lists(
    st.tuples(st.sampled_from(("put", "put", "drop", "forget", "cut")), st.sampled_from("abc")),
    max_size=30,
)


@given(STEPS)
def test_what_is_told_adds_up_to_what_there_is_and_nothing_is_told_twice(
    steps: list[tuple[str, str]],
) -> None:
    cluster, told = Cluster(), list[tuple[Any, Any]]()
    informer = Informer(cluster, "/things", lambda before, now: told.append((before, now)))
    for what, name in steps:
        if what == "put":
            cluster.change(name)
        elif what == "drop":
            cluster.drop(name)
        elif what == "forget":
            cluster.forgotten = cluster.version
        else:
            cluster.cuts.append(1)
            followed(cluster, told, informer)
    cluster.cuts.clear()
    followed(cluster, told, informer)
    assert informer.objects == cluster.objects
    mirror: dict[str, Document] = {}
    for before, now in told:
        uid = (now or before)["metadata"]["uid"]
        assert (uid in mirror) == (before is not None)
        if now is None:
            del mirror[uid]
        else:
            assert mirror.get(uid) != now, "it was told twice"
            mirror[uid] = now
    assert mirror == cluster.objects
