"""What a site installs, if it wants to, and how it removes it again: text to read and copy.

None of it is needed to look on (``up --engine slurm --dry-run``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interlane.engines.slurm.claims import MARK
from interlane.engines.slurm.watch import HEARTBEAT
from interlane.model import InvalidField

SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")
"""What may be in names and paths here: they become parts of programs of others."""
RELEASE_S: Final = 600
"""Seconds without a sign of life after which everything that is held for us is released."""
SHARDS: Final = 1_000
SOCKET: Final = "/run/interlane-lanes/share.sock"
"""Of the lanes daemon of each node."""


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """What manifests are made for."""

    partitions: tuple[str, ...]
    state: Path
    """The server's folder, on the machine of Slurm's controller or shared with it."""
    release_s: int = RELEASE_S
    model: str = "a100"
    gpus: int = 8
    gpu_memory: str = "80GiB"
    command: str = "/usr/local/bin/interlane"

    def __post_init__(self) -> None:
        words = str(self.state), self.model, self.command, self.gpu_memory
        names = (*self.partitions, *words)
        for one in names:
            if not one or not SAFE.issuperset(one):
                raise InvalidField("name", one, "it must be letters, digits, /, ., _ and -")

    @property
    def heartbeat(self) -> Path:
        """The file that shows that the server is alive."""
        return self.state / HEARTBEAT


def manifests(site: SlurmSite) -> dict[str, str]:
    """Return all files by the name that they get."""
    return {
        "job_submit.lua": submit_lua(site),
        "interlane-release": release_script(site),
        "interlane-release.service": _RELEASE_SERVICE,
        "interlane-release.timer": _RELEASE_TIMER,
        "interlane.service": _service(site),
        "gres.conf": gres_lines(site.model, range(site.gpus)),
        "slurm.conf": _CONF_LINES.format(gres=node_gres(site.model, site.gpus)),
        "prolog-interlane": _PROLOG.format(command=site.command, socket=SOCKET),
        "taskprolog-interlane": task_prolog(site.command, SOCKET),
        "interlane-lanes.service": _lanes_service(site),
        "REMOVE": _REMOVE,
    }


def submit_lua(site: SlurmSite) -> str:
    """Return the snippet that holds jobs of our partitions, as long as we are alive."""
    ours = ", ".join(f'["{one}"] = true' for one in site.partitions)
    return _LUA.format(ours=ours, heartbeat=site.heartbeat, release_s=site.release_s, mark=MARK)


def release_script(site: SlurmSite) -> str:
    """Return the script that releases what is held for a server that is dead."""
    return _RELEASE.format(
        heartbeat=site.heartbeat,
        release_s=site.release_s,
        partitions=",".join(site.partitions),
        mark=MARK,
    )


def gres_lines(model: str, numbers: Iterable[int]) -> str:
    """Return lines of ``gres.conf`` that let each GPU be asked for by itself."""
    lines = []
    for number in numbers:
        file = f"/dev/nvidia{number}"
        lines.append(f"Name=gpu Type={model}.{number} File={file}")
        lines.append(f"Name=shard Count={SHARDS} File={file}")
    return "\n".join(lines) + "\n"


def node_gres(model: str, gpus: int) -> str:
    """Return what a node's line of ``slurm.conf`` says of them."""
    each = ",".join(f"gpu:{model}.{number}:1" for number in range(gpus))
    return f"Gres={each},shard:{gpus * SHARDS}"


_LUA: Final = """\
-- job_submit.lua: hold what is submitted to our partitions, so that interlane decides.
-- A job of a partition that is not ours, or that says where it goes, is Slurm's as before; so
-- is every job while interlane gives no sign of life.
local ours = {{ {ours} }}
local heartbeat = "{heartbeat}"
local release_s = {release_s}

local function alive()
   local file = io.open(heartbeat, "r")
   if file == nil then return false end
   local at_s = file:read("*n")
   file:close()
   return at_s ~= nil and os.time() - at_s < release_s
end

function slurm_job_submit(job, partitions, uid)
   local partition = job.partition
   if partition == nil then
      for name, one in pairs(partitions) do
         if one.flag_default == 1 then partition = name end
      end
   end
   local bound = job.req_nodes ~= nil or job.exc_nodes ~= nil or job.features ~= nil
      or job.reservation ~= nil
   -- srun and salloc wait for an answer and have no script: they are Slurm's.
   if partition ~= nil and ours[partition] and not bound and job.script ~= nil and alive() then
      if job.admin_comment == nil then
         job.admin_comment = "{mark}"
         job.priority = 0
      end
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS
"""

_RELEASE: Final = """\
#!/bin/sh
# interlane-release: if interlane has given no sign of life for {release_s} s, release every job
# that it holds.  Run it every minute on the machine of Slurm's controller.
set -u
heartbeat={heartbeat}
at_s=$(cat "$heartbeat" 2>/dev/null || echo 0)
case $at_s in '' | *[!0-9]*) at_s=0 ;; esac
[ $(($(date +%s) - at_s)) -lt {release_s} ] && exit 0

squeue --all --noheader --array --states=PENDING --partition={partitions} --format='%i %Q' |
while read -r job priority; do
    [ "$priority" = 0 ] || continue
    shown=$(scontrol --oneliner show job "$job") || continue
    claim=${{shown##*AdminComment=}}
    case $claim in {mark} | "{mark} "*) ;; *) continue ;; esac
    scontrol update JobId="$job" ReqNodeList= AdminComment="Left: interlane was silent"
    # It was killed between two steps: what the job asked for must be said again.
    case $shown in
    *TresPerNode=gres* | *TresPerJob=gres*) ;;
    *)
        asks=$(printf '%s\\n' "$claim" | sed -n 's/.* a=\\([^ ]*\\).*/\\1/p' | sed 's/gres://g')
        pins=$(printf '%s\\n' "$claim" | sed -n 's/.* g=\\([^ ]*\\).*/\\1/p')
        [ -z "$asks" ] || scontrol update JobId="$job" Gres="$asks" ||
            scontrol update JobId="$job" Gres="$pins"
        ;;
    esac
    scontrol release "$job"
done
"""

_RELEASE_SERVICE: Final = """\
[Unit]
Description=Release the jobs that a silent interlane holds

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/interlane-release
"""

_RELEASE_TIMER: Final = """\
[Unit]
Description=Look every minute whether interlane is alive

[Timer]
OnBootSec=60
OnUnitActiveSec=60

[Install]
WantedBy=timers.target
"""


def task_prolog(command: str, socket: str) -> str:
    """Return the script that lets jobs with a share of a GPU join the lanes daemon."""
    return _TASK_PROLOG.format(command=command, socket=socket)


def _lanes_service(site: SlurmSite) -> str:
    devices = " ".join(
        f"--device cuda:{number}:{site.gpu_memory}" for number in range(site.gpus)
    )
    return (
        "[Unit]\nDescription=Turns on shared GPUs of this node\n\n[Service]\n"
        f"ExecStart={site.command} share daemon {devices} --socket {SOCKET}\n"
        "Restart=always\n\n[Install]\nWantedBy=multi-user.target\n"
    )


def _service(site: SlurmSite) -> str:
    partitions = ",".join(site.partitions)
    return (
        "[Unit]\nDescription=interlane for Slurm\nAfter=slurmctld.service munge.service\n\n"
        "[Service]\n"
        f"ExecStart={site.command} up --engine slurm --partition {partitions} "
        f"--state {site.state}\n"
        "Restart=always\nRestartSec=5\n\n[Install]\nWantedBy=multi-user.target\n"
    )


_CONF_LINES: Final = """\
# slurm.conf: add these, and {gres} to the lines of the nodes.
JobSubmitPlugins=lua
GresTypes=gpu,shard
SelectType=select/cons_tres
# Only where jobs are to share GPUs in turns:
Prolog=/etc/slurm/prolog-interlane
TaskProlog=/etc/slurm/taskprolog-interlane
PrologFlags=Alloc
"""

_PROLOG: Final = """\
#!/bin/sh
# prolog-interlane: runs as root before a job, and lets its user speak to the lanes daemon.
[ -n "${{SLURM_JOB_GPUS:-}}" ] || exit 0
{command} slurm admit --socket {socket} || true
exit 0
"""

_TASK_PROLOG: Final = """\
#!/bin/sh
# taskprolog-interlane: a job that has a share of a GPU takes turns on it with the others.
# What it prints becomes the job's environment; a job that cannot join runs without it.
[ -n "${{SLURM_SHARDS_ON_NODE:-}}" ] || exit 0
{command} slurm join --socket {socket} || true
exit 0
"""

_REMOVE: Final = """\
To remove it all:
1. systemctl disable --now interlane.service
2. systemctl start interlane-release.service, once the time-out has passed
3. systemctl disable --now interlane-release.timer, and delete the files
4. take JobSubmitPlugins, Prolog and TaskProlog out of slurm.conf, and say: scontrol reconfigure
gres.conf may stay as it is: 'gpu:1' and '--gpus' are asked for as before.
"""
