"""Carries out what is asked of attempts: makes pods, binds them, ends them.

Whoever asks waits for nothing here.  What fails for the moment is tried again for as long as it
is wanted and we lead.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.claims import (
    LISTED_MAX,
    Claim,
    GangMember,
    Slot,
    bound_annotations,
    claim_on_job,
    slots_of,
)
from interlane.engines.kubernetes.client import ApiError, Document
from interlane.engines.kubernetes.dialects import SLICE
from interlane.engines.kubernetes.manifests import JOBS, SERVICES, jobs_for, service_for
from interlane.engines.kubernetes.pods import Pod, PodName, name_of, owner_of
from interlane.engines.kubernetes.runs import PodRun, Run, end_of
from interlane.engines.kubernetes.site import ClusterState
from interlane.live.port import Begun, Ended, Launch, NeverBegan, Stop
from interlane.model import Demand, MachineId

PODS_S: Final = 60.0
"""Seconds that the Job controller gets to make pods."""
LOOK_S: Final = 5.0
"""Seconds after which a pod that should have gone is asked again."""
OWN_GRACE: Final = -1
"""Stands for the seconds that a pod itself says."""
STOPPED_BEFORE: Final = "It was stopped before."

log = logging.getLogger("interlane.engines.kubernetes")


class NotBegun(Exception):
    """An attempt cannot begin."""

    def __init__(self, why: str, lacks: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.lacks = lacks


class Carrying:
    """See the module's text."""

    def __init__(self, site: ClusterState, look_again: Callable[[Document], None]) -> None:
        self._site = site
        self._look_again = look_again
        """Takes a pod in as if it had just been seen."""

    # -- to begin ---------------------------------------------------------------------

    async def begin(self, run: Run, launch: Launch) -> None:
        """Let all of an attempt begin, or nothing of it."""
        site = self._site
        try:
            if launch.origin.key is None:
                await self._make_pods(run, launch)
            else:
                self._take_pods(run, launch, launch.origin.key)
            await self._bind_all(run, launch)
        except NotBegun as error:
            if not site.is_closing:  # else the next server undoes it
                await self.undo(run, error.why, error.lacks)
            return
        except Exception as error:  # our own fault, and no reason to begin nothing any more
            log.error("%s could not begin.", run.attempt, exc_info=error)
            await self.undo(run, f"The server failed to start it ({error!r}).")
            return
        self._begun(run)

    def _begun(self, run: Run) -> None:
        site = self._site
        run.is_begun = True
        if run.origin.key is not None:
            taken = site.waiting.taken(run.origin.key)
            run.wanted = run.wanted or (None if taken is None else taken.wanted)
        site.tell(Begun(run.attempt))
        for name in run.nodes - site.sights.keys():
            self.lost_node(name)  # it went while pods were bound to it
        self.settle(run)
        if run.stop is not None and run.attempt in site.runs.open:
            self.end_rest(run)

    def _wait_again(self, run: Run) -> None:
        """Let pods be looked at again that were not bound: they wait, or somebody has them."""
        for member in run.unbound:
            pod = self._site.pods.objects.get(member.name.uid)
            if pod is not None:
                self._look_again(pod)

    def _take_pods(self, run: Run, launch: Launch, key: str) -> None:
        """Give a job's own pods their places."""
        found = self._site.waiting.jobs.get(key)
        if found is None:
            raise NotBegun("Its pods are gone.", "pods")
        slots = slots_of(launch.placement)
        if len(slots) != len(found.pods):
            raise NotBegun(f"It has {len(found.pods)} pods, and {len(slots)} places.")
        run.wanted = found.wanted
        run.namespace = found.pods[0].namespace
        for pod, slot in zip(found.pods, slots, strict=True):
            self._site.runs.member(run, PodRun(pod, slot))

    async def _make_pods(self, run: Run, launch: Launch) -> None:
        """Make the Jobs of an attempt and wait for their pods."""
        site = self._site
        offers = {
            one["metadata"]["name"]: (one.get("status") or {}).get("allocatable") or {}
            for one in site.nodes.objects.values()
        }
        jobs = jobs_for(launch, site.settings, site.seal, offers, run.started_s)
        slots = slots_of(launch.placement)
        self._free_slots(run, slots)
        roles = [one.role for one in launch.job.roles]
        for at, job in enumerate(jobs):
            self._must_be_wanted(run)
            made = await self._made(run, job)
            run.job_names.append(made["metadata"]["name"])
            task = roles.index(job["metadata"]["labels"][words.ROLE])
            site.runs.own(run, made["metadata"]["uid"], task)
            if at == 0 and len(slots) > 1:
                await self._make_service(launch, made)
            for pod in site.unclaimed.pop(made["metadata"]["uid"], {}).values():
                self.arrived(run, pod)
        end_s = asyncio.get_running_loop().time() + PODS_S
        while len(run.pods) < len(slots):
            self._must_be_wanted(run)
            if asyncio.get_running_loop().time() > end_s:
                what = f"{len(run.pods)} of {len(slots)} pods were made in {PODS_S:g} s"
                raise NotBegun(f"{what}; see the events of Job {run.job_names[0]}.", "pods")
            await run.change(1.0)

    def _free_slots(self, run: Run, slots: list[Slot]) -> None:
        run.free = {}
        for slot in slots:
            run.free.setdefault(slot.task, []).append(slot)

    def arrived(self, run: Run, pod: Pod) -> None:
        """Give a pod that a Job of ours made the next place of its task."""
        task = run.owners.get(owner_of(pod) or "", 0)
        left = run.free.get(task)
        if run.is_begun or run.is_ending or not left:
            # The controller replaces a pod that is gone; the attempt ends as a whole instead.
            self._site.spawn(self.delete_pod(name_of(pod), 0))
            return
        self._site.runs.member(run, PodRun(name_of(pod), left.pop(0)))
        run.wake()

    async def _made(self, run: Run, job: Document) -> Document:
        """Make a Job, or find the one that an earlier try made."""
        site = self._site
        path = JOBS.format(site.settings.namespace)
        try:
            return await site.persist(lambda: site.client.post(path, job))
        except ApiError as error:
            if not error.is_conflict:
                raise NotBegun(f"{error}") from None
        name = job["metadata"]["name"]
        try:
            found = await site.persist(lambda: site.client.get(f"{path}/{name}"))
        except ApiError as error:
            raise NotBegun(f"{error}") from None
        claim = claim_on_job(site.seal, found)
        if claim is None or claim.attempt != run.attempt:
            raise NotBegun(f"Somebody else has a Job of the name {name}.")
        return found

    async def _make_service(self, launch: Launch, owner: Document) -> None:
        site = self._site
        path = SERVICES.format(site.settings.namespace)
        try:
            body = service_for(launch, site.settings, owner)
            await site.persist(lambda: site.client.post(path, body))
        except ApiError as error:
            if not error.is_conflict:
                log.warning("%s has no service by which its pods meet: %s", owner, error)

    async def _bind_all(self, run: Run, launch: Launch) -> None:
        self._must_be_wanted(run)
        for member in run.pods.values():
            if member.slot.node not in self._site.sights:
                raise NotBegun(f"Node {member.slot.node} is gone.", f"node {member.slot.node}")
        demands = {at: one.demand for at, one in enumerate(launch.request.tasks)}
        await self.bind(run, list(run.pods.values()), demands)

    async def bind(self, run: Run, pods: list[PodRun], demands: Mapping[int, Demand]) -> None:
        """Bind pods of an attempt, or raise ``NotBegun``; some may be bound by then."""
        site = self._site
        members: tuple[GangMember, ...] = ()
        if run.origin.key is not None and 1 < run.size <= LISTED_MAX:
            members = tuple(GangMember(one.name, one.slot) for one in run.pods.values())
        if run.is_ours and run.size > 1:
            first = min(pods, key=lambda one: one.slot.rank)
            await self._mark_first(first)

        written = {
            pod.name: self._annotations(run, pod, members, demands.get(pod.slot.task, Demand()))
            for pod in pods
        }
        refused: list[str] = []

        def is_wanted() -> bool:
            is_stopped = run.stop is not None or site.is_closing or run.is_ending
            return not is_stopped and not refused  # the rest of a gang is not worth it

        async def bind(pod: PodRun) -> None:
            said = written[pod.name]
            why = await site.binder.bind(pod.name, pod.slot.node, said, is_wanted)
            pod.is_bound = pod.is_bound or why is None
            if why is not None:
                refused.append(why)

        await asyncio.gather(*map(bind, pods))
        if refused:
            # Somebody's pods go on waiting, and are bound when that can be.
            lacks = None if run.is_ours else f"a binding of its pods ({refused[0]})"
            raise NotBegun(refused[0], lacks)

    async def _mark_first(self, pod: PodRun) -> None:
        """Label the pod that the others look for."""
        site = self._site
        body = {"metadata": {"labels": {words.RANK: "0"}}}
        try:
            await site.persist(lambda: site.client.patch(pod.name.path, body))
        except ApiError as error:
            raise NotBegun(f"{error}") from None

    def _annotations(
        self, run: Run, pod: PodRun, members: tuple[GangMember, ...], demand: Demand
    ) -> Mapping[str, str]:
        claim = Claim(run.attempt, run.origin, run.started_s, run.size, pod.slot, members)
        sight = self._site.sights.get(pod.slot.node)
        if sight is None:
            raise NotBegun(f"Node {pod.slot.node} is gone.", f"node {pod.slot.node}")
        machine = sight.machine
        kinds = {machine.device(gpu).type for gpu in pod.slot.gpus if gpu < machine.gpus}
        slices = [one.removeprefix(SLICE) for one in kinds if one.startswith(SLICE)]
        return bound_annotations(
            self._site.seal,
            pod.name,
            claim,
            gpu_milli=demand.gpu_milli,
            gpu_memory_mib=demand.gpu_memory_mib,
            profile=slices[0] if slices else "",
        )

    def _must_be_wanted(self, run: Run) -> None:
        if run.stop is not None or self._site.is_closing:
            raise NotBegun(STOPPED_BEFORE)
        gone = [one.name.name for one in run.pods.values() if not one.is_live or one.is_going]
        if gone:
            raise NotBegun(f"Pod {gone[0]} is gone.", "pods")

    # -- what has become of it --------------------------------------------------------

    def settle(self, run: Run, *, silent: bool = False) -> None:
        """See whether an attempt is over, or must be ended because a part of it is."""
        if not run.is_begun or run.attempt not in self._site.runs.open:
            return
        if not run.live:
            self.over(run, end_of(run), silent=silent)
        elif run.is_ours and not run.is_ending and run.is_broken:
            self.end_rest(run)

    def over(self, run: Run, end: Ended | NeverBegan, *, silent: bool = False) -> None:
        """Note and tell that nothing is left of an attempt."""
        self._site.runs.close(run, end)
        if not silent:
            self._site.tell(end)
        if run.is_ours and not (isinstance(end, Ended) and end.exit_code == 0):
            for name in run.job_names:
                meta = {"namespace": run.namespace, "name": name}
                self._site.spawn(self.delete_job(meta))

    # -- to end -----------------------------------------------------------------------

    def end_rest(self, run: Run) -> None:
        """End all that is left of an attempt that has begun."""
        if not run.is_ending:
            run.is_ending = True
            run.ending = self._site.spawn(self._end(run))
        run.wake()

    async def _end(self, run: Run) -> None:
        if run.is_ours:
            await self._delete_jobs(run)
        await self._end_pods(run)
        self.settle(run)

    async def _end_pods(self, run: Run) -> None:
        """Ask for the end of pods until none is left; one that is asked gets its time."""
        asked: dict[str, bool] = {}
        while live := run.live:
            kills = run.stop not in (Stop.GRACEFUL, Stop.CANCEL)
            for pod in live:
                node_is_gone = pod.is_bound and pod.slot.node not in self._site.sights
                asks = kills or node_is_gone
                is_new = asked.get(pod.name.uid) is not asks
                if is_new and await self._ask_end(run, pod, kills=asks):
                    asked[pod.name.uid] = asks
            if run.live:
                await run.change(LOOK_S)

    async def _ask_end(self, run: Run, pod: PodRun, *, kills: bool) -> bool:
        """Ask for the end of one pod; False if that must be asked again."""
        site = self._site
        if kills or run.is_ours:
            await self.delete_pod(pod.name, self._last_s(pod) if kills else OWN_GRACE)
            return True
        if pod.is_going:
            return True
        body = {
            "apiVersion": f"policy/{site.served.eviction}",
            "kind": "Eviction",
            "metadata": {"name": pod.name.name, "namespace": pod.name.namespace},
            "deleteOptions": _delete_options(pod.name, OWN_GRACE),
        }
        try:
            await site.client.post(f"{pod.name.path}/eviction", body)
        except ApiError as error:
            if error.is_gone or error.is_conflict:
                return error.is_gone
            if error.status == 429:
                site.notices.tell(pod.name, "Preempting", error.said)
            else:
                log.warning("%s could not be evicted: %s", pod.name, error)
            return False
        return True

    async def _delete_jobs(self, run: Run) -> None:
        for name in run.job_names:
            await self.delete_job({"namespace": run.namespace, "name": name})

    async def delete_job(self, meta: Mapping[str, Any]) -> None:
        """Delete a Job; its pods follow."""
        site = self._site
        path = f"{JOBS.format(meta['namespace'])}/{meta['name']}"
        try:
            body = {"propagationPolicy": "Background"}
            await site.persist(lambda: site.client.delete(path, body))
        except ApiError as error:
            if not error.is_gone:
                log.warning("Job %s could not be deleted: %s", meta["name"], error)

    async def delete_pod(self, pod: PodName, grace_s: int) -> None:
        """Delete a pod, and no other of its name."""
        site = self._site
        try:
            body = _delete_options(pod, grace_s)
            await site.persist(lambda: site.client.delete(pod.path, body))
        except ApiError as error:
            if not (error.is_gone or error.is_conflict):
                log.warning("Pod %s could not be deleted: %s", pod.name, error)

    async def undo(self, run: Run, why: str, lacks: str | None = None) -> None:
        """End what of an attempt has begun, and tell that it never will."""
        await self._end_begun(run)
        self.over(run, NeverBegan(run.attempt, why, lacks))
        self._wait_again(run)

    async def _end_begun(self, run: Run) -> None:
        """End the pods of an attempt that are bound or ours; others go on waiting."""
        run.is_ending = True
        if run.is_ours:
            await self._delete_jobs(run)
        else:
            for uid, one in list(run.pods.items()):
                if not one.is_bound:
                    run.pods.pop(uid)
                    self._site.runs.leave(one)
                    run.unbound.append(one)
        while live := run.live:
            for pod in live:
                await self.delete_pod(pod.name, 0 if not pod.is_bound else self._last_s(pod))
            if run.live:
                await run.change(LOOK_S)

    def _last_s(self, pod: PodRun) -> int:
        return 1 if pod.slot.node in self._site.sights else 0

    def lost_node(self, name: MachineId) -> None:
        """End the attempts of a node that is gone: nothing runs there any more."""
        site = self._site
        for run in list(site.runs.open.values()):
            there = [one for one in run.live if one.slot.node == name and one.is_bound]
            if not there:
                continue
            run.lost = f"Node {name} is gone."
            for one in there:
                site.spawn(self.delete_pod(one.name, 0))
            if run.is_begun:
                site.withdraw(run)
                self.end_rest(run)


def _delete_options(pod: PodName, grace_s: int) -> Document:
    """Return how to delete exactly this pod; a negative grace period is the pod's own."""
    said: Document = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": pod.uid},
    }
    return said if grace_s < 0 else {**said, "gracePeriodSeconds": grace_s}
