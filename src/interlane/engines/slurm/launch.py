"""From a decision to what Slurm is asked: arguments, never text for a shell.

A job that ``sbatch`` brought is held; it is told its nodes and GPUs and then released, which is
the moment of decision.  A job that came in through us is submitted, one job of Slurm's for each
instance, held until all of them are there.  Its script is the same for all: what it runs is in
its environment, which is handed over in a file and not in words.
"""

import json
import os
import pwd
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

from interlane.engines.slurm.claims import MARK, HeldClaim, LaunchedClaim
from interlane.engines.slurm.commands import SlurmCommands, SlurmSaysNo
from interlane.engines.slurm.glances import WrittenComments
from interlane.engines.slurm.gres import GPU, SHARD
from interlane.engines.slurm.machines import NodeGpus
from interlane.engines.slurm.reading import SlurmJob
from interlane.engines.slurm.wanted import asks_of
from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec, read_spec
from interlane.live.port import Attempt, Launch
from interlane.live.ranks import Rank, ranks_of
from interlane.model import MILLI, InvalidField, InvalidInput, Placement, Spot

PORTS: Final = range(20_000, 30_000)
LAUNCHED: Final = f"{MARK}-launch"
"""The comment of what we submit, until it has a claim."""
SPEC: Final = "#INTERLANE "
"""How the line of a script begins that has the job's file."""
RUN: Final = "INTERLANE_RUN"
SCRIPT: Final = f'#!/bin/sh\n{{spec}}\nexec /bin/sh -c "${RUN}"\n'
HELD: Final = "Priority=0"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class SlurmAccounts:
    """As whom jobs run that come in through us."""

    is_root: bool
    """Whether we may submit for others."""
    trusts_users: bool = False
    """Whether those who have no account of their own may submit; they run as we do."""

    def check(self, user: str) -> None:
        """Refuse users for whom nothing can be submitted."""
        self.of(user)

    def of(self, user: str) -> pwd.struct_passwd:
        """Return the account of a user."""
        own = pwd.getpwuid(os.geteuid())
        if not self.is_root or user == own.pw_name:
            return own
        try:
            return pwd.getpwnam(user)
        except KeyError:
            if self.trusts_users:
                return own
            raise InvalidInput(
                f"{user!r} has no account on this machine, and jobs do not run as root; name "
                "tokens as accounts are named, or start the server with --trust-users."
            ) from None


def check_job(job: JobSpec) -> None:
    """Refuse what Slurm cannot be asked for."""
    if job.secrets:
        raise InvalidField("secrets", job.secrets[0], "--engine slurm keeps no secrets")
    if job.image is not None:
        raise InvalidField("image", job.image, "--engine slurm runs no containers")
    for at, task in enumerate(job.roles):
        gpu = task.resources.gpu
        if gpu is not None and gpu.count > 1 and gpu.compute is not None:
            rule = "Slurm gives a job shares of one GPU only; ask for one, or for whole GPUs"
            raise InvalidField(f"gpu.compute of task {at}", gpu.compute, rule)
        if gpu is not None and gpu.memory is not None:
            rule = "Slurm does not count the memory of GPUs; ask for compute"
            raise InvalidField(f"gpu.memory of task {at}", gpu.memory, rule)


def gres_words(gpus: tuple[int, ...], milli: int, node: NodeGpus) -> str:
    """Return the resources to ask for: these GPUs, where they can be told apart."""
    if not gpus:
        return ""
    if milli >= MILLI:
        if node.pinned:
            return ",".join(f"{GPU}:{node.types[number]}:1" for number in gpus)
        (kind,) = {node.types[number] for number in gpus} or {""}
        return f"{GPU}:{kind}:{len(gpus)}"
    (number,) = gpus
    if not node.shards[number]:
        raise InvalidInput("The node's GPUs have no shards; see 'interlane slurm manifests'.")
    parts = -(-milli * node.shards[number] // MILLI)
    return f"{SHARD}:{node.types[number]}:{parts}"


@dataclass(frozen=True, slots=True)
class Launcher:
    """Asks Slurm for attempts."""

    slurm: SlurmCommands
    partition: str | None
    """Where jobs go that come in through us; Slurm's default, if not given."""
    accounts: SlurmAccounts
    folder: Path
    """Where jobs work that run as we do and do not say where."""
    written: WrittenComments = field(default_factory=WrittenComments)

    # -- jobs that sbatch brought -----------------------------------------------------

    def pin_and_release(
        self, job: SlurmJob, launch: Launch, nodes: Mapping[str, NodeGpus]
    ) -> None:
        """Tell a job where it goes, and let it go; its claim goes with it.

        What it asked for before is forgotten first: Slurm would add the two, and refuses a type
        of GPU to a job that named none.  It is held meanwhile, whoever has released it.
        """
        gres = _same_everywhere(launch, nodes)
        claim = HeldClaim(
            launch.attempt.number,
            job.restarts,
            launch.origin.serial,
            launch.origin.submitted_s,
            job.first_s,
            asks=asks_of(job),
            pins=gres or job.held_claim.pins,
        )
        there = ",".join(_distinct(launch.placement))
        words = [f"ReqNodeList={there}"]
        if job.restarts:  # Slurm lets what it requeued wait for two minutes
            words.append("StartTime=now")
        if gres:
            asked = (("Node", job.tres_per_node), ("Job", job.tres_per_job))
            words += [f"TresPer{name}=" for name, text in asked if text]
        self._update(job.id, *words, HELD, comment=str(claim))
        if gres:
            self._update(job.id, f"Gres={gres}")
        self.release(job.id)

    def unpin(self, job: SlurmJob, comment: str) -> None:
        """Let a held job go anywhere again, and say in its comment what becomes of it.

        It goes on asking for the GPU numbers that it was given last: Slurm takes no request
        without them from a job that had them.
        """
        self._update(job.id, "ReqNodeList=", comment=comment)
        claim = job.held_claim
        if claim.asks and not (job.tres_per_node or job.tres_per_job):
            try:
                self._update(job.id, f"Gres={claim.asks.replace('gres:', '')}")
            except SlurmSaysNo:
                self._update(job.id, f"Gres={claim.pins}")

    def note(self, job_id: str, text: str) -> None:
        """Write an administrator's comment."""
        self._update(job_id, comment=text)

    def _update(self, job_id: str, *words: str, comment: str | None = None) -> None:
        said = () if comment is None else (f"AdminComment={comment}",)
        try:
            self.slurm.run("scontrol", "update", f"JobId={job_id}", *said, *words)
        except Exception:
            if comment is not None:
                self.written.doubt(job_id)
            raise
        if comment is not None:
            self.written.wrote(job_id, comment)

    def hold(self, *ids: str) -> None:
        """Hold jobs."""
        self.slurm.run("scontrol", "hold", ",".join(ids))

    def release(self, *ids: str) -> None:
        """Release jobs."""
        self.slurm.run("scontrol", "release", ",".join(ids))

    def requeue_held(self, job_id: str) -> None:
        """End the present run of a job, and hold it."""
        self.slurm.run("scontrol", "requeuehold", job_id)

    # -- jobs of ours -----------------------------------------------------------------

    def submit(
        self, launch: Launch, nodes: Mapping[str, NodeGpus], hosts: Mapping[str, str]
    ) -> list[str]:
        """Submit an attempt, held and claimed; return what Slurm calls its instances."""
        ranks = ranks_of(
            launch.job, launch.placement, lambda machine: hosts[machine], _ports(launch)
        )
        ids: list[str] = []
        try:
            for number, rank in enumerate(ranks):
                ids.append(self._submit_one(launch, rank, number, nodes))
                self._claim_one(ids[-1], launch, rank, number, len(ranks))
        except Exception:
            if ids:
                self.cancel(*ids)
            raise
        return ids

    def workdir(self, launch: Launch) -> str:
        """Return where an attempt works, and prints to."""
        if launch.job.workdir is not None:
            return launch.job.workdir
        account = self.accounts.of(launch.origin.user)
        return str(self.folder) if account.pw_uid == os.geteuid() else account.pw_dir

    def _submit_one(
        self, launch: Launch, rank: Rank, number: int, nodes: Mapping[str, NodeGpus]
    ) -> str:
        job, account = launch.job, self.accounts.of(launch.origin.user)
        folder = self.workdir(launch)
        demand = launch.request.tasks[rank.task].demand
        options = [
            "--parsable",
            "--hold",
            "--no-requeue",
            "--nodes=1",
            "--ntasks=1",
            f"--job-name={job.name}",
            f"--comment={LAUNCHED}",
            f"--chdir={folder}",
            f"--output={output_path(launch.attempt, folder, number)}",
            f"--nodelist={rank.machine}",
            f"--cpus-per-task={max(1, -(-demand.cpu_milli // MILLI))}",
        ]
        if demand.memory_mib:
            options.append(f"--mem={demand.memory_mib}M")
        gres = gres_words(rank.devices, demand.gpu_milli, nodes[rank.machine])
        if gres:
            options.append(f"--gres={gres}")
        limit_s = spec.limit_s(job)
        if limit_s is not None:
            options.append(f"--time={max(1, round(limit_s / 60 + 0.5))}")
        if self.partition is not None:
            options.append(f"--partition={self.partition}")
        if account.pw_uid != os.geteuid():
            options += [f"--uid={account.pw_uid}", f"--gid={account.pw_gid}"]
        env = _environment(launch, rank, account)
        with tempfile.TemporaryFile() as file:
            pairs = (f"{name}={value}\0" for name, value in env.items())
            file.write("".join(pairs).encode("utf-8", "surrogateescape"))
            file.seek(0)
            script = SCRIPT.format(spec=f"{SPEC}{json.dumps(job.document)}")
            said = self.slurm.run(
                "sbatch", *options, f"--export-file={file.fileno()}", text=script,
                fds=(file.fileno(),),
            )  # fmt: skip
        return said.strip().partition(";")[0]

    def _claim_one(
        self, job_id: str, launch: Launch, rank: Rank, number: int, instances: int
    ) -> None:
        origin = launch.origin
        claim = LaunchedClaim(
            launch.attempt, number, instances, rank.task, origin.serial, origin.submitted_s
        )
        self.note(job_id, str(claim))

    def cancel(self, *ids: str) -> None:
        """Cancel jobs for good; those that are over are."""
        with suppress(SlurmSaysNo):
            self.slurm.run("scancel", *ids)

    def signal(self, number: int, *ids: str) -> None:
        """Send a signal to all processes of jobs; those that are over need none."""
        with suppress(SlurmSaysNo):
            self.slurm.run("scancel", "--full", f"--signal={number}", *ids)

    def spec_of(self, job_id: str) -> JobSpec | None:
        """Return the job's file that a script of ours has."""
        said = self.slurm.run("scontrol", "write", "batch_script", job_id, "-")
        for line in said.splitlines():
            if line.startswith(SPEC):
                try:
                    return read_spec(json.loads(line.removeprefix(SPEC)))
                except (ValueError, InvalidInput):
                    return None
        return None


def output_path(attempt: Attempt, folder: str, number: int) -> Path:
    """Return where an instance of an attempt prints to."""
    rank = f".{number}" if number else ""
    return Path(folder) / f"interlane-{attempt.job_id}.{attempt.number}{rank}.out"


def _distinct(placement: Placement) -> Sequence[str]:
    """Return the nodes of a placement; Slurm has one instance of a job of users on each."""
    machines = [spot.machine for spot in placement.spots for _ in range(spot.instances)]
    if len(set(machines)) < len(machines):
        raise InvalidInput("Slurm runs a job of several nodes on nodes that differ.")
    return machines


def _same_everywhere(launch: Launch, nodes: Mapping[str, NodeGpus]) -> str:
    """Return the resources to ask for on every node of a job.

    Slurm asks for the same on all: where GPUs differ from node to node, it chooses them.
    """
    demand = launch.request.tasks[0].demand
    if not demand.gpus:
        return ""
    found = {_gres_on(spot, demand.gpu_milli, nodes) for spot in launch.placement.spots}
    return found.pop() if len(found) == 1 else ""


def _gres_on(spot: Spot, milli: int, nodes: Mapping[str, NodeGpus]) -> str:
    return gres_words(spot.gpus, milli, nodes[spot.machine])


def _ports(launch: Launch) -> list[int]:
    """Return ports that other attempts are unlikely to have; nobody here can try them."""
    first = crc32(f"{launch.attempt}".encode())
    return [PORTS[(first + at) % len(PORTS)] for at in range(1 + launch.placement.instances)]


def _environment(launch: Launch, rank: Rank, account: pwd.struct_passwd) -> dict[str, str]:
    job, attempt = launch.job, launch.attempt
    return {
        "PATH": PATH,
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        **rank.torch,
        **job.env,
        **job.roles[rank.task].env,
        "INTERLANE_JOB_ID": attempt.job_id,
        "INTERLANE_JOB_UID": attempt.uid,
        "INTERLANE_ATTEMPT": str(attempt.number),
        RUN: job.command(job.roles[rank.task]),
        **rank.own,
    }
