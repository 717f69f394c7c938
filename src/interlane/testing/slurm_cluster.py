"""A private Slurm: real daemons on this machine, in one folder, with device files for GPUs.

Every node is a ``slurmd`` of its own on a port of its own.  GPUs are device files that nothing
drives, which is all that Slurm asks of them: it hands them out, counts their shards and sets
``CUDA_VISIBLE_DEVICES``.  Each GPU has a type of its own (``emu.0``, ``emu.1``, ...), as
``interlane slurm manifests`` proposes, so that whoever submits can name one.

It takes root, because daemons change users and device files are made, and Debian's packages
``slurm-wlm`` and ``munge``; ``lacking`` says which of these is missing.
"""

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from interlane.testing.waiting import until

PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo")
MAJOR: Final = 195
"""The number of NVIDIA's driver; no device needs to be there."""
SHARDS: Final = 1_000
GPU_TYPE: Final = "emu"
PARTITIONS: Final = ("gpu", "other")
"""Both have all nodes; the first is the default, and ours."""
GOODBYE_S: Final = 10.0

_CONF: Final = """\
ClusterName=interlane
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
CredType=cred/munge
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu,shard
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MinJobAge={min_job_age_s}
KillWait=2
MaxJobCount=20000
MaxArraySize=10001
SlurmctldTimeout=30
SlurmdTimeout={node_timeout_s}
DefMemPerCPU=100
Licenses=tool:1
{extra}
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs={cpus} \
RealMemory={memory_mib} Gres={gres} State=UNKNOWN
PartitionName=gpu Nodes={nodes} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=other Nodes={nodes} Default=NO MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True, slots=True)
class SlurmShape:
    """What a private Slurm looks like."""

    nodes: int = 2
    gpus: int = 2
    cpus: int = 4
    memory_mib: int = 64_000
    min_job_age_s: int = 300
    node_timeout_s: int = 60
    extra: str = "SchedulerParameters=bf_interval=1,sched_interval=5"
    """More lines of ``slurm.conf``."""
    lua: str | None = None
    """A ``job_submit.lua``."""

    @property
    def names(self) -> list[str]:
        """Its nodes."""
        return [f"n{number}" for number in range(self.nodes)]


def lacking() -> str | None:
    """Say why no Slurm can be started here; None if one can."""
    if os.geteuid() != 0:
        return "A private Slurm takes root, which these tests do not have."
    gone = [name for name in PROGRAMS if shutil.which(name) is None]
    if gone:
        return f"Slurm is not installed ({', '.join(gone)}); apt-get install slurm-wlm munge."
    with TemporaryDirectory(prefix="interlane-slurm-") as name:
        try:
            os.mknod(Path(name) / "device", 0o666 | stat.S_IFCHR, os.makedev(MAJOR, 0))
        except OSError as error:
            return f"No device files can be made here ({error.strerror})."
    return None


@dataclass
class SlurmCluster:
    """Daemons that run, and how to speak to them."""

    folder: Path
    shape: SlurmShape
    daemons: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    """By name: munged, slurmctld, and each node's slurmd under the node's name."""

    @property
    def env(self) -> dict[str, str]:
        """The environment in which Slurm's programs speak to this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str, text: str | None = None) -> str:
        """Run one of Slurm's programs and return what it printed."""
        done = subprocess.run(
            command, env=self.env, input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise AssertionError(f"{command}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, *options: str, script: str = "#!/bin/sh\nsleep 600\n") -> str:
        """Submit a batch script and return the job's number."""
        said = self.run("sbatch", "--parsable", f"--output={self.folder}/out.%j", *options,
                        text=script)  # fmt: skip
        return said.strip()

    def state(self, job: str) -> str:
        """Return a job's state as Slurm names it; empty once it has forgotten it."""
        done = subprocess.run(
            ("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"),
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    # -- daemons ----------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until all nodes are up."""
        self._start_munge()
        self.start_controller()
        for node in self.shape.names:
            self.start_node(node)
        until(self._all_idle, "a Slurm with all nodes")

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {"key-file": key, "socket": self.folder / "munge.socket"}
        files |= {name: self.folder / f"munged.{name}" for name in ("pid-file", "log-file")}
        options = [f"--{name}={path}" for name, path in files.items()]
        self._start("munged", "munged", "--foreground", "--force", *options,
                    f"--seed-file={self.folder}/munged.seed")  # fmt: skip
        until((self.folder / "munge.socket").exists, "munge's socket")

    def start_controller(self) -> None:
        """Start the controller; it takes up what it had stored."""
        self._start("slurmctld", "slurmctld", "-D")
        until(self.answers, "an answer of slurmctld")

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self._start(node, "slurmd", "-D", "-N", node)

    def answers(self) -> bool:
        """Tell whether the controller answers."""
        done = subprocess.run(
            ("scontrol", "ping"), env=self.env, capture_output=True, text=True, check=False
        )
        return " UP" in done.stdout

    def _all_idle(self) -> bool:
        states = self.run("sinfo", "--noheader", "--Node", "--partition=gpu", "--format=%T")
        return states.split() == ["idle"] * self.shape.nodes

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.said").open("ab") as said:
            self.daemons[name] = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def kill(self, name: str, how: int = signal.SIGKILL) -> None:
        """End a daemon; jobs of a node go on until ``end_jobs``."""
        daemon = self.daemons.pop(name)
        daemon.send_signal(how)
        daemon.wait()

    def stop_controller(self) -> None:
        """End the controller so that it stores what it knows."""
        self.kill("slurmctld", signal.SIGTERM)

    def end_jobs(self, node: str) -> None:
        """Kill all processes of jobs on a node."""
        for pid in self._steps(node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _steps(self, node: str | None = None) -> Iterator[int]:
        """Yield the processes of jobs, and those that run them, which outlive daemons."""
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                env = (path / "environ").read_bytes().split(b"\0")
                is_ours = f"SLURM_CONF={self.folder}/slurm.conf".encode() in env
                words = (path / "cmdline").read_bytes()
                runs_steps = words.startswith(b"slurmstepd")
                is_there = node is None or f"SLURMD_NODENAME={node}".encode() in env
                if is_ours and ((is_there and b"SLURM_JOB_ID=" in b"\n".join(env)) or (
                    runs_steps and node is None
                )):  # fmt: skip
                    yield int(path.name)

    def close(self) -> None:
        """End all jobs and daemons."""
        if "slurmctld" in self.daemons:
            subprocess.run(("scancel", "--user=root", "--full", "--signal=KILL"), env=self.env,
                           capture_output=True, check=False)  # fmt: skip
        for name in reversed(list(self.daemons)):
            self._end(name)
        end_s = time.monotonic() + GOODBYE_S
        while (left := list(self._steps())) and time.monotonic() < end_s:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _end(self, name: str) -> None:
        daemon = self.daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


@contextmanager
def slurm(shape: SlurmShape | None = None) -> Iterator[SlurmCluster]:
    """Run a private Slurm for as long as the block lasts."""
    made = shape or SlurmShape()
    with ExitStack() as stack:
        name = stack.enter_context(
            TemporaryDirectory(prefix="interlane-slurm-", ignore_cleanup_errors=True)
        )
        folder = Path(name)
        folder.chmod(0o755)  # jobs of others write their output here
        _write(folder, made)
        cluster = SlurmCluster(folder, made)
        stack.callback(cluster.close)
        cluster.start()
        yield cluster


def _write(folder: Path, shape: SlurmShape) -> None:
    """Write the configuration and make the device files."""
    controller, *nodes = _free_ports(1 + shape.nodes)
    first = min(nodes)
    (folder / "state").mkdir()
    devices = folder / "dev"
    devices.mkdir()
    for gpu in range(shape.gpus):
        path = devices / f"nvidia{gpu}"
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(MAJOR, gpu))
    gres = ",".join(
        [f"gpu:{GPU_TYPE}.{gpu}:1" for gpu in range(shape.gpus)]
        + ([f"shard:{shape.gpus * SHARDS}"] if shape.gpus else [])
    )
    lines = []
    for gpu in range(shape.gpus):
        file = devices / f"nvidia{gpu}"
        lines.append(f"Name=gpu Type={GPU_TYPE}.{gpu} File={file}")
        lines.append(f"Name=shard Count={SHARDS} File={file}")
    (folder / "gres.conf").write_text("\n".join(lines) + "\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    extra = shape.extra
    if shape.lua is not None:
        (folder / "job_submit.lua").write_text(shape.lua)
        extra += "\nJobSubmitPlugins=lua"
    many = shape.nodes > 1
    text = _CONF.format(
        folder=folder,
        host=socket.gethostname(),
        port=controller,
        nodes=f"n[0-{shape.nodes - 1}]" if many else "n0",
        ports=f"[{first}-{first + shape.nodes - 1}]" if many else first,
        cpus=shape.cpus,
        memory_mib=shape.memory_mib,
        gres=gres or "(null)",
        min_job_age_s=shape.min_job_age_s,
        node_timeout_s=shape.node_timeout_s,
        extra=extra,
    )
    (folder / "slurm.conf").write_text(text)


def _free_ports(wanted: int) -> Sequence[int]:
    """Return a port and then others in a row, which nobody listens at."""
    for first in range(21_000 + os.getpid() % 5_000, 32_000, wanted):
        ports = range(first, first + wanted)
        if all(_is_free(port) for port in ports):
            return ports
    raise AssertionError("There are no free ports for a Slurm.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
