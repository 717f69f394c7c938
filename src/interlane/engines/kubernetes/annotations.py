"""The words that the scheduler, its users and its nodes have in common.

What a user writes is a request; what ``BOUND`` names is written by the scheduler in the same
call that binds the pod, whatever a user had put there before.  Nodes believe it only with the
seal of ``sealing.py``, because whoever may create pods may write annotations.
"""

from typing import Final

DOMAIN: Final = "interlane.dev"
SCHEDULER: Final = "interlane"
"""What ``spec.schedulerName`` says of pods that are ours to place."""

# -- what users write on pods ---------------------------------------------------------

GPU_FRACTION: Final = f"{DOMAIN}/gpu-fraction"
"""``0.5``: the share of each GPU, from above 0 to 1."""
GPU_COUNT: Final = f"{DOMAIN}/gpu-count"
"""On how many GPUs; 1 if not given."""
GPU_MEMORY: Final = f"{DOMAIN}/gpu-memory"
"""``12GB``: memory of each GPU."""
GPU_TYPE: Final = f"{DOMAIN}/gpu-type"
"""``A100`` or ``A100,H100``: types that will do."""
GANG: Final = f"{DOMAIN}/gang"
"""A name: pods of one namespace with the same one start together."""
GANG_SIZE: Final = f"{DOMAIN}/gang-size"
"""How many pods the gang has."""
QUEUE: Final = f"{DOMAIN}/queue"
PRIORITY: Final = f"{DOMAIN}/priority"
"""0 to 100; that of the pod's priority class, if not given."""
EXPECTED: Final = f"{DOMAIN}/expected"
"""``2h``: how long it is expected to run."""
GROUP: Final = f"{DOMAIN}/group"
"""What recurs; jobs of one image and command, if not given."""
CHECKPOINT: Final = f"{DOMAIN}/checkpoint-interval"
"""``10m``: how often it saves its work."""

# -- what a Binding writes ------------------------------------------------------------

GPU_INDEX: Final = f"{DOMAIN}/gpu-index"
"""``2`` or ``0,3``: the numbers of the node's GPUs that are the pod's."""
GPU_MILLI: Final = f"{DOMAIN}/gpu-milli"
"""Its share of each of them, in thousandths."""
GPU_MEMORY_MIB: Final = f"{DOMAIN}/gpu-memory-mib"
"""Its memory on each of them; 0 if nobody said."""
SLICE: Final = f"{DOMAIN}/slice"
"""The profile of its MIG slice, as in ``1g.5gb``; empty if it has none."""
RANK: Final = f"{DOMAIN}/rank"
"""Which instance of its task the pod is."""
ATTEMPT: Final = f"{DOMAIN}/attempt"
"""Whose attempt it is, and all that another server must know to take it up; JSON."""
SEAL: Final = f"{DOMAIN}/seal"
"""Shows that the scheduler wrote the others for this pod on this node."""

BOUND: Final = (GPU_INDEX, GPU_MILLI, GPU_MEMORY_MIB, SLICE, RANK, ATTEMPT, SEAL)
"""All that a Binding writes, so that nothing of a user's is left in them."""

# -- labels of what we create ---------------------------------------------------------

JOB_UID: Final = f"{DOMAIN}/job-uid"
JOB_ATTEMPT: Final = f"{DOMAIN}/job-attempt"
ROLE: Final = f"{DOMAIN}/role"
LAUNCH: Final = f"{DOMAIN}/launch"
"""An annotation of a Job: what it was begun with; JSON."""

# -- resources ------------------------------------------------------------------------

NVIDIA_GPU: Final = "nvidia.com/gpu"
NVIDIA_MIG: Final = "nvidia.com/mig-"
"""How resources of slices begin; the profile follows."""
SHARE: Final = f"{DOMAIN}/gpu-share"
"""Hundredths of GPUs, as our device plugin advertises them: 100 for each GPU."""
SHARES_PER_GPU: Final = 100
NVIDIA_PRODUCT: Final = "nvidia.com/gpu.product"
"""The label of a node that names its GPUs."""
NVIDIA_MEMORY: Final = "nvidia.com/gpu.memory"
"""The label of a node that says how many MiB each has."""
