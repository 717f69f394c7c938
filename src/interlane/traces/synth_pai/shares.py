"""What the trace is made to look like: published figures, and what they leave open.

Figures are those of "MLaaS in the Wild" (NSDI 2022).  Where a figure can only be met together
with others by a choice, the choice is made here and said so.
"""

from dataclasses import dataclass
from typing import Final

HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
LOCAL_S: Final = 8 * HOUR_S
"""Times count in UTC; people live eight hours ahead."""

BEGIN_S: Final = 6 * DAY_S - LOCAL_S
"""The first midnight, of a Wednesday as 1 July 2020 was (second 0 is a Thursday, 8 o'clock)."""

FULL_DAYS: Final = 61
JOBS_PER_DAY: Final = 19_000
INSTANCES_PER_DAY: Final = 119_700
USERS: Final = 1_312

# -- who ------------------------------------------------------------------------------

TOP_USERS: Final = 0.05
TOP_SHARE: Final = 0.77
TOP_LEAST: Final = 0.00262
"""Share of instances of the last of the top users; figure 2a: above 17.5 K."""
HALF_MOST: Final = 2.2e-5
"""Share of the most active user of the lower half; figure 2a: below 180."""

# -- how often ------------------------------------------------------------------------

RECURRENCE: Final = (
    (1, 1, 0.150),
    (2, 2, 0.125),
    (3, 4, 0.075),
    (5, 10, 0.050),
    (11, 62, 0.200),
    (63, 100, 0.170),
    (101, 1000, 0.180),
    (1001, 4000, 0.050),
)
"""Runs of a program (figure 10): from, to, share of tasks."""

# -- gangs ----------------------------------------------------------------------------

GANGS: Final = (
    (1200, 0.004), (1024, 0.005), (800, 0.008), (512, 0.013),
    (400, 0.012), (300, 0.013), (256, 0.015),
    (200, 0.022), (150, 0.020), (128, 0.018),
    (100, 0.110),
    (80, 0.030), (64, 0.022), (60, 0.028),
    (50, 0.065), (40, 0.050), (32, 0.035), (30, 0.055), (25, 0.035), (24, 0.020),
    (20, 0.070), (16, 0.030), (15, 0.025), (12, 0.015),
    (10, 0.085), (8, 0.040), (5, 0.008), (4, 0.004), (2, 0.002),
)  # fmt: skip
"""Instances of a gang, and the share of all instances that are in gangs of this size (2b)."""

LARGEST_LOAD: Final = 0.008
"""No program has more than this share of all instances."""

SERVED_GANGS: Final = 0.5
"""Gangs with GPUs that have parameter servers beside them, as a second task."""
SERVERS_PER_WORKER: Final = 0.45

BARE_ALONE, BARE_GANGS = 0.15, 0.36
"""Work that wants no GPU, of jobs with one instance and of instances in gangs.

With the parameter servers, four instances in ten ask for no GPU.  No figure says so, but the
published CPUs per GPU of all requests and the GPUs asked for in an hour need it.
"""

# -- requests -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InstanceAsk:
    """What an instance asks for: percents of a GPU and of cores, as users write them."""

    gpu: int
    single: float
    """Share of GPU instances that are alone in their task."""
    gang: float
    """Share of GPU instances in gangs."""
    cpu: tuple[tuple[int, float], ...]


ASKS: Final = (
    InstanceAsk(800, 0.006, 0.0030, ((1600, 0.3), (4800, 0.4), (6400, 0.3))),
    InstanceAsk(400, 0.006, 0.0040, ((600, 0.3), (1600, 0.4), (3200, 0.3))),
    InstanceAsk(200, 0.012, 0.0060, ((600, 0.5), (1200, 0.3), (1600, 0.2))),
    InstanceAsk(100, 0.400, 0.2530, ((600, 0.74), (400, 0.06), (800, 0.10), (1200, 0.10))),
    InstanceAsk(50, 0.200, 0.2980, ((600, 0.76), (400, 0.11), (800, 0.06), (1000, 0.07))),
    InstanceAsk(25, 0.250, 0.3480, ((600, 0.76), (400, 0.15), (800, 0.06), (200, 0.03))),
    InstanceAsk(20, 0.020, 0.0320, ((600, 0.5), (400, 0.4), (200, 0.1))),
    InstanceAsk(15, 0.010, 0.0090, ((600, 0.5), (400, 0.4), (200, 0.1))),
    InstanceAsk(10, 0.070, 0.0380, ((600, 0.5), (400, 0.3), (200, 0.2))),
    InstanceAsk(5, 0.025, 0.0130, ((600, 0.4), (400, 0.3), (200, 0.3))),
)
"""GPU requests (figure 5), and the CPUs asked for beside them."""

BARE_CPU: Final = ((600, 0.08), (800, 0.14), (1000, 0.28), (1200, 0.46), (1600, 0.04))
"""CPUs of work without GPUs, servers included."""

MEMORY_GIB: Final = (
    (4.0, 0.06), (8.0, 0.10), (14.6484375, 0.14), (19.53125, 0.10), (29.296875, 0.38),
    (39.0625, 0.08), (48.828125, 0.06), (58.59375, 0.055), (97.65625, 0.025),
)  # fmt: skip
"""Main memory; 30,000 MB is what most people write."""

NAMED_TYPE: Final = 0.06
"""Share of tasks that insist on a GPU type."""

# -- where ----------------------------------------------------------------------------

KINDS: Final = ("CPU", "MISC", "T4", "P100", "V100", "V100M32")
"""Kinds of machines, weakest first."""
CPU, MISC, T4, P100, V100, V100M32 = range(len(KINDS))

CARD_GIB: Final = (0.0, 12.0, 15.0, 16.0, 16.0, 32.0)
"""Memory of a card, by kind."""

GPU_ALLOCATED: Final = {MISC: 0.74, V100: 0.51, V100M32: 0.52}
"""GPUs allocated in the mean; machines with two GPUs get what is left."""
TAIL_DAYS: Final = 2.5
"""How long after the last submission the last work ends, about."""

BARE_KINDS: Final = (
    (P100, 0.085, 4.0), (T4, 0.085, 4.0), (CPU, 0.065, 2.0),
    (V100, 0.075, 0.25), (V100M32, 0.08, 0.25), (MISC, 0.61, 0.0),
)  # fmt: skip
"""Where instances without GPUs run, their share, and how much longer ones are preferred.

Work without GPUs is long on machines with two GPUs, which have CPUs to spare, and short beside
eight; else the published CPUs per GPU of requests and of what is allocated do not agree.
"""

# -- lengths --------------------------------------------------------------------------

RUN_AT: Final = (0.0, 0.02, 0.10, 0.25, 0.50, 0.75, 0.90, 0.99, 0.999, 1.0)
RUN_S: Final = (6.0, 20.0, 80.0, 345.0, 1_390.0, 4_750.0, 14_800.0, 62_000.0, 140_000.0, 2.5e5)
"""Run time of instances (figure 4a)."""
RUN_LEAST_S: Final = 4
RUN_MOST_S: Final = 5 * DAY_S

SPREADS: Final = ((0.03, 0.40), (0.16, 0.36), (0.75, 0.24))
"""Spread of the log of a program's run times, and the share of instances with it (12)."""
DRIFT: Final = 0.35
"""Part of that spread which is a slow drift, so that runs near in time are alike."""
VARIED: Final = 0.35
VARIED_RUNS: Final = 0.30
SLOWDOWN: Final = 0.35
"""Programs that are also run with another request, how often, and how much it matters."""
BARE_SOON, SERVED_SOON, WHOLE_SOON = 1.7, 0.3, 0.3
"""How much sooner work without GPUs ends, and gangs with servers, in spreads of all work."""
OWNER_PULL: Final = 0.72
"""How much the run times of one user's programs are alike."""

# -- workloads ------------------------------------------------------------------------

WORKLOADS: Final = ("", "ctr", "bert", "nmt", "xlnet", "graphlearn", "rl")
NLP: Final = (2, 3, 4)
CTR, GNN, RL = 1, 5, 6
CTR_TASKS: Final = 0.067
NLP_TASKS: Final = 0.064
GNN_INSTANCES, RL_INSTANCES = 0.012, 0.008
CTR_TRAINING: Final = 0.25
"""Instances of ctr tasks that train; the others infer (role evaluator)."""
NLP_LARGE: Final = 0.73
"""NLP tasks that need 16 GB of a card or more."""
