"""Looks at everything: what the driver compares with, and what users read on pods."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.carrying import Carrying
from interlane.engines.kubernetes.claims import claim_on_job, claim_on_pod
from interlane.engines.kubernetes.client import ApiError, Document
from interlane.engines.kubernetes.pods import PodName, is_going, name_of
from interlane.engines.kubernetes.runs import Run
from interlane.engines.kubernetes.site import ClusterState
from interlane.live.port import Attempt, Begun, Found, Observation, Wanted

NOT_OURS: Final = f"The label {words.JOB_UID} is interlane's own; remove it from the pod."


@dataclass(frozen=True, slots=True)
class Observing:
    """See the module's text."""

    site: ClusterState
    carrying: Carrying

    def observe(self, known: Collection[Attempt]) -> Observation:
        """Return everything as it is."""
        site = self.site
        if not site.may_write():
            raise ApiError(0, "no lease", "This server does not lead at the moment.")
        self._tidy()
        sights = [site.sight(one) for one in known]
        seen = set(known)
        others = [
            Begun(one)
            for one, run in site.runs.open.items()
            if one not in seen and (run.is_begun or run.is_ending)
        ]
        begun = [one for one in site.runs.open.values() if one.is_begun and one.pods]
        came = [one for one in begun if not one.is_ours and not one.is_withdrawn]
        wanted = [one.wanted for one in site.waiting.jobs.values()]
        return Observation(
            tuple(one.machine for one in site.sights.values()),
            (*sights, *others),
            frozenset(name for name, one in site.sights.items() if one.drained),
            tuple(
                site.foreign.occupied(one.machine, site.used_gpus(name))
                for name, one in site.sights.items()
                if site.foreign.nodes.get(name)
            ),
            (*wanted, *map(self._wanted_again, came)),
            tuple(map(self._found, begun)),
            site.serial,
        )

    def _wanted_again(self, run: Run) -> Wanted:
        """Return the job of an attempt as it came in."""
        if run.wanted is None:
            assert run.origin.key is not None
            run.wanted = Wanted(run.origin.key, self.site.job_of(run), run.origin.user)
        return run.wanted

    def _found(self, run: Run) -> Found:
        job = self.site.job_of(run)
        return Found(run.attempt, job, run.origin, run.placement, run.started_s)

    def _tidy(self) -> None:
        """Delete Jobs that ended long ago, and refuse pods that claim to be of ours."""
        site = self.site
        for job in list(site.jobs.objects.values()):
            is_known = job["metadata"]["uid"] in site.runs.of_owner
            if not is_known and not is_going(job) and _over_s(job) > site.keep_s:
                site.spawn(self.carrying.delete_job(job["metadata"]))
        for owner, pods in site.unclaimed.items():
            job = site.jobs.objects.get(owner, {})
            if not job or claim_on_job(site.seal, job) is None:
                for pod in pods.values():
                    site.notices.refuse(name_of(pod), NOT_OURS)

    def explain(self, key: str, said: str) -> None:
        """Say on the pods of a job why they wait."""
        job = self.site.waiting.jobs.get(key)
        for pod in () if job is None else job.pods:
            self.site.notices.refuse(pod, said)

    def explain_gangs(self) -> None:
        """Say on pods of gangs that are not complete what is missing."""
        waiting = self.site.waiting
        for gang in waiting.gangs():
            there, needed = waiting.short_of(gang)
            said = f"Gang {gang.name} has {there} of {needed} pods; it starts with the last."
            if needed is None:
                said = f"There is no PodGroup {gang.name}; create it, or remove the label."
            for pod in waiting.waiting_of(gang):
                self.site.notices.refuse(pod, said)

    def first_pod(self, attempt: Attempt) -> PodName | None:
        """Return the first pod of an attempt, which may be over."""
        run = self.site.runs.open.get(attempt)
        if run is not None and run.pods:
            return min(run.pods.values(), key=lambda one: one.slot.rank).name
        for pod in self.site.pods.objects.values():
            claim = claim_on_pod(self.site.seal, pod)
            if claim is not None and claim.attempt == attempt:
                return name_of(pod)
        return None


def _over_s(job: Document) -> float:
    """Return for how many seconds a Job has been over; 0 if it is not."""
    status = job.get("status") or {}
    ended = status.get("completionTime")
    for one in status.get("conditions") or ():
        if one.get("type") == "Failed" and one.get("status") == "True":
            ended = ended or one.get("lastTransitionTime")
    return 0.0 if ended is None else time.time() - datetime.fromisoformat(ended).timestamp()
