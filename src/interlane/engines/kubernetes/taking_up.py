"""Takes up what earlier servers began: from the cluster alone, before anything is reported.

A gang of somebody's pods that was bound in part is bound to its end, if all of it is there.
What else is half done is undone.
"""

import asyncio
import logging
from dataclasses import dataclass

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.carrying import Carrying, NotBegun
from interlane.engines.kubernetes.claims import Claim, GangMember, claim_on_job, claim_on_pod
from interlane.engines.kubernetes.client import Document
from interlane.engines.kubernetes.pods import Pod, name_of
from interlane.engines.kubernetes.runs import PodRun, Run
from interlane.engines.kubernetes.site import ClusterState
from interlane.live.port import Ended
from interlane.model import Demand

log = logging.getLogger("interlane.engines.kubernetes")


@dataclass(frozen=True, slots=True)
class TakingUp:
    """See the module's text."""

    site: ClusterState
    carrying: Carrying

    async def take_up(self) -> None:
        """Know all attempts that there are; finish or undo what is half done."""
        site = self.site
        for node in site.nodes.objects.values():
            site.see_node(node)
        for job in site.jobs.objects.values():
            claim = claim_on_job(site.seal, job)
            if claim is not None:
                self._found_job(claim, job)
        for pod in site.pods.objects.values():
            claim = claim_on_pod(site.seal, pod)
            if claim is not None:
                self._found_pod(claim, pod)
        half = []
        for run in list(site.runs.open.values()):
            run.is_begun = len(run.pods) >= run.size
            if run.is_done and not run.live:
                self.carrying.over(run, Ended(run.attempt, 0), silent=True)
            elif run.is_begun:
                self.carrying.settle(run, silent=True)
            else:
                half.append(self._finish_or_undo(run))
        await asyncio.gather(*half)

    def _found_job(self, claim: Claim, job: Document) -> None:
        run = self._found(claim, job["metadata"]["namespace"])
        run.job = claim.job
        run.is_done = _ended_well(job)
        run.job_names.append(job["metadata"]["name"])
        roles = [] if claim.job is None else [one.role for one in claim.job.roles]
        role = (job["metadata"].get("labels") or {}).get(words.ROLE)
        task = roles.index(role) if role in roles else 0
        self.site.runs.own(run, job["metadata"]["uid"], task)

    def _found_pod(self, claim: Claim, pod: Pod) -> None:
        run = self._found(claim, pod["metadata"]["namespace"])
        assert claim.slot is not None
        found = PodRun(name_of(pod), claim.slot)
        found.see(pod)
        self.site.runs.member(run, found)

    def _found(self, claim: Claim, namespace: str) -> Run:
        site = self.site
        site.serial = max(site.serial, claim.origin.serial)
        run = site.runs.open.get(claim.attempt)
        if run is None:
            run = Run(claim.attempt, claim.origin, claim.size, claim.started_s, namespace)
            site.runs.add(run)
        return run

    async def _finish_or_undo(self, run: Run) -> None:
        if await self._finished(run):
            run.is_begun = True
            self.carrying.settle(run, silent=True)
        else:
            log.warning("%s had begun in part, and is ended.", run.attempt)
            self.site.spawn(self.carrying.undo(run, "The server ended while it began."))

    async def _finished(self, run: Run) -> bool:
        """Bind the rest of a gang, if all of it is there and has a place."""
        site = self.site
        if run.is_ours or any(not one.is_live or one.is_going for one in run.pods.values()):
            return False
        listed = self._listed(run)
        if len(listed) != run.size or any(one.slot.node not in site.sights for one in listed):
            return False
        missing = [one for one in listed if one.pod.uid not in run.pods]
        for one in missing:
            pod = site.pods.objects.get(one.pod.uid)
            if pod is None or pod["spec"].get("nodeName"):
                return False
        pods = [PodRun(one.pod, one.slot) for one in missing]
        demands = self._demands(run)
        for each in pods:
            site.runs.member(run, each)
        try:
            await self.carrying.bind(run, pods, demands)
        except NotBegun:
            return False
        return True

    def _listed(self, run: Run) -> tuple[GangMember, ...]:
        for uid in run.pods:
            pod = self.site.pods.objects.get(uid)
            claim = None if pod is None else claim_on_pod(self.site.seal, pod)
            if claim is not None and claim.members:
                return claim.members
        return ()

    def _demands(self, run: Run) -> dict[int, Demand]:
        """Return what tasks of a gang ask of GPUs, as pods of them that are bound were told."""
        found: dict[int, Demand] = {}
        for member in run.pods.values():
            pod = self.site.pods.objects[member.name.uid]
            said = pod["metadata"]["annotations"]
            milli = max(1, int(said[words.GPU_MILLI]))
            memory_mib = int(said[words.GPU_MEMORY_MIB])
            found[member.slot.task] = Demand(len(member.slot.gpus), milli, memory_mib)
        return found


def _ended_well(job: Document) -> bool:
    """Tell whether all pods of a Job have succeeded."""
    done: int = (job.get("status") or {}).get("succeeded") or 0
    return bool(done >= job["spec"]["completions"])
