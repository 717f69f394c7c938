"""What happens in the cluster becomes what is reported, and what is asked is passed on.

The cluster owns the truth.  Informers keep copies of its nodes, pods and Jobs; everything here
is computed from them, and from what was asked and is on its way.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.carrying import Carrying
from interlane.engines.kubernetes.claims import claim_on_job, claim_on_pod
from interlane.engines.kubernetes.client import Document
from interlane.engines.kubernetes.discovery import discover
from interlane.engines.kubernetes.informer import Changed, Informer
from interlane.engines.kubernetes.observing import Observing
from interlane.engines.kubernetes.pods import (
    Pod,
    asks_for_us,
    is_bound,
    is_going,
    is_over,
    name_of,
    owner_of,
)
from interlane.engines.kubernetes.reports import report_in
from interlane.engines.kubernetes.runs import Run
from interlane.engines.kubernetes.site import ClusterState
from interlane.engines.kubernetes.taking_up import TakingUp
from interlane.live.port import (
    Attempt,
    Drained,
    Ended,
    Launch,
    MachineGone,
    MachineSeen,
    NeverBegan,
    Pending,
    Stop,
    Unanswered,
    Wanted,
    Withdrawn,
)
from interlane.model import MachineId

SERIAL: Final = f"{words.DOMAIN}/serial"
"""The annotation of the Lease that holds the highest number of a job that ever began."""
CANCELLED: Final = "It was cancelled in interlane; delete the pod."
BOUND_ELSEWHERE: Final = (
    f"Another scheduler bound this pod, though it says schedulerName: {words.SCHEDULER}; "
    "interlane gave it no GPU. Let one scheduler of that name run."
)
NODES_S: Final = 2.0
"""Seconds after which pods that fitted on no node are tried again when nodes have changed."""
CLOSE_S: Final = 2.0
"""Seconds in which what is on its way arrives when a server ends."""

log = logging.getLogger("interlane.engines.kubernetes")


class Core:
    """See the module's text."""

    def __init__(self, site: ClusterState) -> None:
        self.site = site
        self.carrying = Carrying(site, self._look_again)
        self.observing = Observing(site, self.carrying)
        self._is_open = False
        self._earlier: set[str] = set()
        """Pods that were there before us, and of which we have refused none yet, by uid."""
        self._asks_again: asyncio.TimerHandle | None = None
        site.nodes.changed = self._guarded(self._node)
        site.pods.changed = self._guarded(self._pod)
        site.jobs.changed = self._guarded(self._job)
        site.told.changed = self._guarded(self._report)

    async def open(self) -> None:
        """See everything, take up what runs, and begin to report."""
        site = self.site
        site.served = await site.persist(lambda: discover(site.client))
        site.seal = await site.persist(site.sealing_key)
        if site.leadership is not None:
            site.leadership.note = lambda: {SERIAL: f"{site.serial}"}
            said = site.leadership.annotations.get(SERIAL, "0")
            site.serial = int(said) if said.isdecimal() else 0
        for path in site.served.group_paths():
            site.groups.append(Informer(site.client, path, self._guarded(self._group)))
        informers = (site.nodes, site.pods, site.jobs, *site.groups)
        for informer in informers:
            site.spawn(informer.run())
        for informer in informers:
            await informer.synced.wait()
        await TakingUp(site, self.carrying).take_up()
        self._is_open = True
        self._earlier = set(site.pods.objects)
        for node in list(site.nodes.objects.values()):
            self._node(None, node)
        for pod in sorted(site.pods.objects.values(), key=_age):
            self._guarded(self._pod)(None, pod)
        site.spawn(site.notices.run())
        site.spawn(site.told.run())

    async def close(self) -> None:
        """Do nothing more; what is on its way arrives."""
        self.site.is_closing = True
        runs = list(self.site.runs.open.values())
        for run in runs:
            run.wake()
        writing = [one.task for one in runs if one.task is not None]
        if writing:
            await asyncio.wait(writing, timeout=CLOSE_S)
        await self.site.end_tasks()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way that was asked."""
        runs = list(self.site.runs.open.values())
        return all(one.is_begun and not one.is_ending for one in runs)

    # -- what is asked ----------------------------------------------------------------

    def begin(self, launch: Launch) -> None:
        """Begin an attempt, unless it was before."""
        site, attempt = self.site, launch.attempt
        if attempt in site.runs.over or attempt in site.runs.open:
            sight = site.sight(attempt)
            if not isinstance(sight, Pending | Unanswered):
                site.tell(sight)
            return
        site.serial = max(site.serial, launch.origin.serial)
        size, where = launch.placement.instances, site.settings.namespace
        run = Run(attempt, launch.origin, size, time.time(), where, launch.job)
        site.runs.add(run)
        run.task = site.spawn(self.carrying.begin(run, launch))

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """Stop an attempt, whether it is known or not."""
        run = self.site.runs.open.get(attempt)
        if run is None:
            sight = self.site.sight(attempt)
            assert isinstance(sight, Ended | NeverBegan)
            self.site.tell(sight)
            return
        if run.stop is None or how is Stop.KILL:
            run.stop = how
        run.wake()
        if run.is_begun:
            self.site.withdraw(run)  # pods that somebody else made are not made again by us
            self.carrying.end_rest(run)

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Say on pods why they are not scheduled; ask again once nodes are others.

        Of pods that an earlier server refused nobody knows for which nodes it did.
        """
        self.observing.explain(key, CANCELLED if was_cancelled else why)
        job = self.site.waiting.jobs.get(key)
        if job is None or was_cancelled:
            return
        self.site.waiting.refused(key)
        uids = {one.uid for one in job.pods}
        if uids & self._earlier:
            self._earlier -= uids
            self._refused_again()

    def _nodes_are_others(self) -> None:
        """Ask again for what was refused, once for all nodes that change together."""
        if self._asks_again is None:
            loop = asyncio.get_running_loop()
            self._asks_again = loop.call_later(NODES_S, self._refused_again)

    def _refused_again(self) -> None:
        self._asks_again = None
        self._want(self.site.waiting.refused_again())

    # -- what changes in the cluster --------------------------------------------------

    def _guarded(self, take: Changed) -> Changed:
        """Take changes in once everything was seen; one that nobody foresaw hurts no other."""

        def guarded(before: Document | None, now: Document | None) -> None:
            meta = (now or before or {}).get("metadata") or {}
            if not self._is_open and meta.get("uid") not in self.site.runs.of_pod:
                return  # what there is is looked at once all of it is there
            try:
                take(before, now)
            except Exception as error:
                log.error("%s could not be taken in.", meta.get("name"), exc_info=error)

        return guarded

    def _node(self, before: Document | None, now: Document | None) -> None:
        site = self.site
        name = MachineId((now or before or {})["metadata"]["name"])
        known = site.sights.get(name) if before is not None else None
        sight = None if now is None else site.see_node(now)
        if sight is None:
            site.sights.pop(name, None)
            site.tell(MachineGone(name))
            self.carrying.lost_node(name)
            return
        if known is None or known.machine != sight.machine:
            site.tell(MachineSeen(sight.machine))
            self._nodes_are_others()
            if name in site.foreign.nodes:
                self._occupy(name)
        if known is None or known.drained != sight.drained:
            site.tell(Drained(name, sight.drained))

    def _report(self, before: Document | None, now: Document | None) -> None:
        """Hear what an agent tells: how its devices are, and what those on them do."""
        if now is None:
            return
        site, report = self.site, report_in(now)
        known = site.reports.get(report.node)
        site.reports[report.node] = report
        if known is None or known.devices != report.devices:
            for node in site.nodes.objects.values():
                if node["metadata"]["name"] == report.node:
                    self._node(node, node)
        measured = report.measured(time.monotonic())
        if measured is not None:
            site.tell(measured)

    def _job(self, before: Document | None, now: Document | None) -> None:
        """End a Job that a server made which no longer leads."""
        site = self.site
        if now is None or now["metadata"]["uid"] in site.runs.of_owner or is_going(now):
            return
        claim = claim_on_job(site.seal, now)
        is_known = claim is None or claim.attempt in site.runs.open
        if before is None and not is_known:
            log.warning("%s was made by an earlier server and is deleted.", claim)
            site.spawn(self.carrying.delete_job(now["metadata"]))

    def _group(self, before: Document | None, now: Document | None) -> None:
        """See whether a group is complete, now that its size is known or another."""
        if now is None:
            return
        meta = now["metadata"]
        for gang in self.site.waiting.gangs():
            if (gang.namespace, gang.name) == (meta["namespace"], meta["name"]):
                self._want(self.site.waiting.complete(gang))

    def _pod(self, before: Document | None, now: Document | None) -> None:
        pod = now or before
        assert pod is not None
        uid = pod["metadata"]["uid"]
        run = self.site.runs.of_pod.get(uid)
        if run is not None:
            self._member(run, uid, pod, is_there=now is not None)
        elif now is None or is_over(pod):
            self._no_more(uid, pod)
        elif is_bound(pod):
            self._bound_elsewhere(uid, pod)
        elif asks_for_us(pod) and not is_going(pod):
            self._waits(uid, pod)
        else:
            self._no_more(uid, pod)

    def _look_again(self, pod: Document) -> None:
        """Take a pod in as if it had just been seen."""
        self._guarded(self._pod)(None, pod)

    def _member(self, run: Run, uid: str, pod: Pod, *, is_there: bool) -> None:
        member = run.pods[uid]
        member.see(pod)
        member.is_gone = not is_there
        run.wake()
        gone = member.is_going or member.is_gone
        if gone and run.stop is None and not member.is_over:
            self.site.withdraw(run)
        if not is_there and not member.is_bound:
            self.site.waiting.remove(uid)
        self.carrying.settle(run)

    def _no_more(self, uid: str, pod: Pod) -> None:
        self._waits_no_more(uid)
        owner = owner_of(pod)
        if owner in self.site.unclaimed:
            self.site.unclaimed[owner].pop(uid, None)
        node = self.site.foreign.remove(uid)
        if node is not None:
            self._occupy(MachineId(node))

    def _bound_elsewhere(self, uid: str, pod: Pod) -> None:
        """Count a pod that somebody else bound; one that an earlier server bound must end."""
        site = self.site
        claim = claim_on_pod(site.seal, pod)
        if uid in site.waiting and claim is None:
            site.notices.tell(name_of(pod), "BoundElsewhere", BOUND_ELSEWHERE)
        self._waits_no_more(uid)
        if claim is not None and not is_going(pod):
            log.warning("%s was bound by an earlier server and is deleted.", claim.attempt)
            site.spawn(self.carrying.delete_pod(name_of(pod), 1))
        if site.foreign.add(uid, pod):
            self._occupy(MachineId(pod["spec"]["nodeName"]))

    def _waits_no_more(self, uid: str) -> None:
        key = self.site.waiting.remove(uid)
        if key is not None:
            self.site.tell(Withdrawn(key))

    def _waits(self, uid: str, pod: Pod) -> None:
        site, owner = self.site, owner_of(pod) or ""
        if words.JOB_UID in (pod["metadata"].get("labels") or {}):
            run = site.runs.of_owner.get(owner)
            if run is None:
                site.unclaimed.setdefault(owner, {})[uid] = pod
            else:
                self.carrying.arrived(run, pod)
            return
        rules = len(site.rules.known)
        made = site.waiting.add(pod)
        if len(site.rules.known) != rules:
            self._label_nodes()
        self._want(made)

    def _want(self, made: Iterable[Wanted]) -> None:
        for wanted in made:
            self.site.tell(wanted)

    def _label_nodes(self) -> None:
        """Let the scheduler know which nodes fit a rule that is new."""
        for node in self.site.nodes.objects.values():
            self._node(node, node)

    def _occupy(self, name: MachineId) -> None:
        site = self.site
        sight = site.sights.get(name)
        if sight is not None:
            site.tell(site.foreign.occupied(sight.machine, site.used_gpus(name)))


def _age(pod: Pod) -> tuple[str, str]:
    meta = pod["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]
