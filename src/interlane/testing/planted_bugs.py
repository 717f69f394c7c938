"""The bugs that ``planted`` plants: what is changed, which invariant dies, and who notices."""

from typing import Final

from interlane.testing.planted_bug import PlantedBug, Scripts
from interlane.testing.planted_findings import FINDINGS

KERNEL, LANES, MIG = "tests/kernel", "tests/lanes", "tests/mig"
STORE = "tests/live/test_store.py"


_SCHEDULER: Final = (
    PlantedBug(
        "interlane.kernel.state",
        "what a job held is not given back when it ends",
        """\
        self.ledger.release(entry.rows)
        self.running.remove(entry)\
""",
        "        self.running.remove(entry)",
        "The ledger balances: what nobody holds is free.",
        (f"{KERNEL}/test_lifecycle.py",),
    ),
    PlantedBug(
        "interlane.kernel.state",
        "a growth that fails keeps its place",
        """\
        self.ledger.release(entry.rows[kept:])
""",
        "",
        "The ledger balances after every growth.",
        (f"{KERNEL}/test_growth.py",),
    ),
    PlantedBug(
        "interlane.kernel.victims",
        "jobs are stopped that would be ahead in the queue again",
        "return (value + slope * now_s, entry.job.serial) > ahead",
        "return True",
        "Preemption never goes in circles.",
        (f"{KERNEL}/test_preemption.py",),
    ),
    PlantedBug(
        "interlane.kernel.preempt",
        "others are stopped while some are being stopped already",
        "if self._state.queue and not self._state.stopping:",
        "if self._state.queue:",
        "Nobody is stopped in vain.",
        (f"{KERNEL}/test_preemption.py",),
    ),
    PlantedBug(
        "interlane.kernel.reservation",
        "a job counts as short that ends after the reservation begins",
        "return now_s + entry.left_s() / entry.job.request.least_ratio <= self.at_s",
        "return now_s <= self.at_s",
        "EASY backfill never delays the head beyond its promise.",
        (f"{KERNEL}/test_queues.py",),
    ),
)

_LEDGER: Final = (
    PlantedBug(
        "interlane.kernel.ledger",
        "a placement that does not fit is held",
        """\
        if end < 0:
            return False
        self.changed = end
        return True\
""",
        """\
        self.changed = max(end, self.changed)
        return True\
""",
        "No machine is overcommitted, whatever a policy says.",
        (f"{KERNEL}/test_referee.py", f"{KERNEL}/test_recovery.py"),
    ),
    PlantedBug(
        "interlane.kernel.ledger",
        "what runs is held again on a machine that is lost",
        """\
        if machines & self.lost:
            return False
""",
        "",
        "Nothing runs on machines that are gone.",
        (f"{KERNEL}/test_recovery.py", f"{KERNEL}/test_machines.py"),
    ),
    PlantedBug(
        "interlane.kernel.ledger",
        "what others have of a machine is forgotten once jobs are held again",
        """\
        for number, row in taken.items():
            self.free[number] -= row
""",
        "",
        "What others occupy is not given to jobs.",
        (f"{KERNEL}/test_recovery.py", f"{KERNEL}/test_machines.py"),
    ),
)

_LANES: Final = (
    PlantedBug(
        "interlane.lanes.domain",
        "a lease is taken back under any epoch",
        "return turns if (turns.lease.job_id, turns.lease.epoch) == (job_id, epoch) else None",
        "return turns if turns.lease.job_id == job_id else None",
        "What is told of an earlier lease changes nothing.",
        (f"{LANES}/test_domain.py",),
    ),
    PlantedBug(
        "interlane.lanes.domain",
        "a lane is granted while jobs of the daemon before may hold it",
        "if not waiting or self._recovering_until_s is not None:",
        "if not waiting:",
        "No two holders of a lane, over restarts too.",
        (f"{LANES}/test_domain.py",),
    ),
    PlantedBug(
        "interlane.lanes.domain",
        "two jobs come back as holders of one lane",
        "if event.epoch is not None and turns.lease is not None:",
        "if event.epoch is None and turns.lease is not None:",
        "No two holders of a lane.",
        (f"{LANES}/test_domain.py",),
    ),
    PlantedBug(
        "interlane.lanes.domain",
        "the lane of a holder that dies stays held",
        """\
            if held_it:
                self._turns[lane.id].vacate()
            else:\
""",
        "            if not held_it:",
        "A device is never shared with the dead.",
        (f"{LANES}/test_domain.py",),
    ),
    PlantedBug(
        "interlane.lanes.memory",
        "contexts of processes are not given back",
        "self._held_bytes -= demand.persistent_bytes + processes * self.budget.context_bytes",
        "self._held_bytes -= demand.persistent_bytes",
        "The book balances: what nobody has is free.",
        (f"{LANES}/test_memory.py",),
    ),
    PlantedBug(
        "interlane.lanes.memory",
        "a lane is booked at its size now, not at what it becomes",
        "return max(self.size_bytes, self.target_bytes)",
        "return self.size_bytes",
        "Memory of a device is never overcommitted.",
        (f"{LANES}/test_memory.py",),
    ),
)

_STORE: Final = (
    PlantedBug(
        "interlane.live.store.store",
        "records that change are not stored, only the log is",
        """\
            if changed:
                connection.execute(_UPDATE_JOB, changed)
""",
        "",
        "The log folds to the records.",
        Scripts("cluster", 4),
    ),
    PlantedBug(
        "interlane.live.store.store",
        "a server that was superseded goes on to write",
        """\
            raise self._superseded()

    def _superseded\
""",
        """\
            pass

    def _superseded\
""",
        "One server writes: work is fenced, and so is the database.",
        (f"{STORE}::test_a_server_whose_epoch_is_over_writes_nothing_more[sqlite]",),
    ),
    PlantedBug(
        "interlane.live.driver.reports",
        "a report of an earlier attempt is taken for the present one",
        "or not record.state.holds or attempt_of(record) != attempt:",
        "or not record.state.holds:",
        "Late reports change nothing.",
        Scripts("cluster", 10),
    ),
    PlantedBug(
        "interlane.live.driver.reports",
        "a shortage counts as a failed start",
        "if isinstance(report, NeverBegan) and report.lacks is not None:",
        "if isinstance(report, NeverBegan) and report.lacks is None:",
        "Shortage is not failure.",
        Scripts("cluster", 10),
    ),
    PlantedBug(
        "interlane.live.driver.reports",
        "an attempt that nobody wants goes on",
        """\
                    batch.give_up(sight.attempt, place)
""",
        """\
                    pass
""",
        "One live attempt per job: what nobody knows is ended.",
        Scripts("cluster", 100),
    ),
)

_SHIMS: Final = (
    PlantedBug(
        "interlane.engines.local.shim",
        "a claim replaces the one that is there",
        "os.link(mine, os.path.join(folder, CLAIM))",
        "os.replace(mine, os.path.join(folder, CLAIM)); open(mine, 'w').close()",
        "An attempt begins once; never means never.",
        Scripts("shims"),
    ),
    PlantedBug(
        "interlane.engines.local.shim",
        "a claim is not on the disk before the job runs",
        """\
        os.fsync(fd)
        os.link(mine, os.path.join(folder, CLAIM))
        _keep(folder)
""",
        """\
        os.link(mine, os.path.join(folder, CLAIM))
""",
        "What ran is not said never to have begun, whatever happens to the machine.",
        Scripts("shims", 200),
    ),
    PlantedBug(
        "interlane.engines.local.shim",
        "a gang begins though not all of it could join",
        "        if any(said) or len(said) < len(self.children):",
        "        if not said:",
        "A gang runs as a whole, or not at all.",
        ("tests/engines/local/test_shims_simulated.py",),
    ),
    PlantedBug(
        "interlane.engines.local.shim",
        "a job has ended though processes are left that it started",
        "return bool(self.children) or self._left() != set()",
        "return bool(self.children)",
        "Over means over: a device is never shared with the dead.",
        Scripts("shims", 200),
    ),
    PlantedBug(
        "interlane.engines.local.shim",
        "the watcher of a shim that was killed leaves the job running",
        """\
    if code:
        _end_all(group)
""",
        """\
    if code:
""",
        "Over means over, when a shim is killed too.",
        Scripts("shims"),
    ),
    PlantedBug(
        "interlane.engines.local.shim",
        "a shim says that a job succeeded of which a process failed",
        """\
            if self.code is None or (code and not self.code):
                self.code = code
""",
        """\
            self.code = 0
""",
        "Ends are true.",
        Scripts("shims"),
    ),
    PlantedBug(
        "interlane.engines.local.runner",
        "an attempt that nobody has begun is not fenced off",
        """\
        fence = shim.claim(str(folder), json.dumps(words))
        if fence is not None:
            os.close(fence)
            return unclaimed
""",
        """\
        return unclaimed
""",
        "Never means never: a shim that is late does not run.",
        Scripts("shims", 200),
    ),
    PlantedBug(
        "interlane.engines.local.runner",
        "an end is told while processes of the attempt are left",
        """\
            group.kill()
            return False
        group.remove()\
""",
        """\
            return True
        group.remove()\
""",
        "A device is free only when every process of the attempt is gone.",
        Scripts("shims", 200),
    ),
    PlantedBug(
        "interlane.engines.local.engine",
        "an attempt that could not be started is started when it is asked for again",
        "report = self._failed.get(attempt) or self._past(attempt, digest_of(launch.job))",
        "report = self._past(attempt, digest_of(launch.job))",
        "Never means never.",
        Scripts("shims", 200),
    ),
    PlantedBug(
        "interlane.engines.local.engine",
        "a job counts as begun when its shim was only started",
        "                report = Pending(attempt)",
        "                report = Begun(attempt)",
        "The log says what is true: what started has started.",
        ("tests/engines/local/test_shims_simulated.py",),
    ),
    PlantedBug(
        "interlane.engines.local.claims",
        "a job that was stopped for good runs again with an old copy of the records",
        "return (folder.parent / CANCELLED).exists()",
        "return False",
        "Cancelled means cancelled; nothing runs twice.",
        Scripts("shims", 200),
    ),
)

_TRANSITION: Final = (
    PlantedBug(
        "interlane.mig.transition.order",
        "a service is drained below its floor",
        "return self._given.get(service, 0.0) - floor * (1 - _SLACK)",
        "return self._given.get(service, 0.0)",
        "No service falls below its floor on the way.",
        (f"{MIG}/test_transitions.py",),
    ),
    PlantedBug(
        "interlane.mig.transition.order",
        "slots are cut where services still run",
        "return [held for held in self._busy[gpu] if _clash(model, slot, held)]",
        "return []",
        "Nothing is destroyed while it serves.",
        (f"{MIG}/test_transitions.py",),
    ),
    PlantedBug(
        "interlane.mig.transition.journal",
        "a step begins before those that it waits for are done",
        "if left and left[0] not in self.begun and not any(self._left[n] for n in before)",
        "if left and left[0] not in self.begun",
        "Steps are taken in an order that was verified.",
        (f"{MIG}/test_transition_crashes.py",),
    ),
    PlantedBug(
        "interlane.mig.transition.journal",
        "a step that is done is forgotten over a crash",
        """\
            self.expected = after_step(self.expected, self.steps[number])
""",
        "",
        "After a crash at any moment the transition goes on from where it was.",
        (f"{MIG}/test_transition_crashes.py",),
    ),
)

_DEVICE: Final = (
    PlantedBug(
        "interlane.device.sessions",
        "the memory of a job is free when its connection ends",
        "        if resident.job.page is None:  # it only waited",
        "        if resident.job is not None:",
        "A device is never shared with the dead, nor with who is away.",
        Scripts("device"),
    ),
    PlantedBug(
        "interlane.device.journal",
        "what a job holds is not written down",
        """\
            self._records[record.key] = record
            self._append(json.dumps(asdict(record)))\
""",
        "            self._records[record.key] = record",
        "A new daemon knows who holds memory.",
        Scripts("device"),
    ),
    PlantedBug(
        "interlane.device.shared",
        "a lease counts that a job brings along, whoever has the lane",
        "return all(lease.lane != lane for lease in self.domain.leases)",
        "return True",
        "No two holders of a lane, and no job is refused its own.",
        Scripts("device", 200),
    ),
    PlantedBug(
        "interlane.device.shared",
        "a lane that was passed on is not booked",
        "            if successor_epoch > lease.epoch:  # else it tells of an earlier lease",
        "            if successor_epoch < 0:",
        "Every job gets its turns.",
        Scripts("device"),
    ),
    PlantedBug(
        "interlane.device.client",
        "a client takes up a lease that is older than its last",
        """\
            if epoch <= self._newest_epoch:
                continue
""",
        """\
            if not epoch:
                continue
""",
        "No two holders of a lane.",
        Scripts("device", 200),
    ),
)

_GATEWAY: Final = (
    PlantedBug(
        "interlane.live.functions.deployed",
        "a call that was begun is sent again when its replica ends",
        "            if not was_begun and not call.tries:",
        "            if not call.tries:",
        "No call is carried out twice.",
        Scripts("functions"),
    ),
    PlantedBug(
        "interlane.live.functions.deployed",
        "calls that a replica had in hand are dropped with it",
        """\
                call.tries = 1
                self.take(call)
""",
        """\
                call.tries = 1
""",
        "No call is dropped in silence, nor later than its deadline.",
        Scripts("functions"),
    ),
    PlantedBug(
        "interlane.live.functions.deployed",
        "a call that waits past its deadline is not told",
        """\
        if call.end(_reply(CallOutcome.LATE, f"{said}.")):
            self.counts.late += 1
""",
        """\
        self.counts.late += 1
""",
        "Every call is answered in time.",
        Scripts("functions"),
    ),
    PlantedBug(
        "interlane.live.functions.deployed",
        "a replica gets more calls than it takes at a time",
        """\
        if len(replica.calls) >= self.spec.concurrency:
""",
        """\
        if len(replica.calls) > self.spec.concurrency:
""",
        "Calls stay within the concurrency of a replica.",
        Scripts("functions"),
    ),
    PlantedBug(
        "interlane.live.functions.gateway",
        "who waits for a function that is deployed anew is forgotten",
        """\
            for call in self._let_go(old):
                deployed.take(call)
""",
        """\
            self._let_go(old)
""",
        "No call is dropped in silence.",
        Scripts("functions", 200),
    ),
    PlantedBug(
        "interlane.functions.scheduler",
        "a function gets more replicas than it may have",
        """\
        return min(room, max(""",
        """\
        return max(room, max(""",
        "No more replicas than may be.",
        (
            "tests/functions/test_scheduler.py"
            "::test_who_leaves_counts_until_it_is_gone_so_that_none_has_more_than_it_may",
        ),
    ),
    PlantedBug(
        "interlane.functions.ledger",
        "memory is lent again before who had it is gone",
        """\
        gpu.functions.remove(need)
""",
        """\
        gpu.functions.remove(need)
        gpu.memory_mib += need.memory_mib
""",
        "Memory of a device is never overcommitted.",
        Scripts("functions", 200),
    ),
)

PLANTED: Final[tuple[PlantedBug, ...]] = (
    *_SCHEDULER,
    *_LEDGER,
    *_LANES,
    *_STORE,
    *_SHIMS,
    *_TRANSITION,
    *_DEVICE,
    *_GATEWAY,
    *FINDINGS,
)
"""All of them."""
