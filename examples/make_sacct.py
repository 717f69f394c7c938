"""Make the two example exports, april.txt and may.txt, as `sacct --parsable2` would write them.

python make_sacct.py

There is no Slurm here: eight users run twelve programs again and again on the machines of
lab.yaml, first come, first served, and interlane's own simulator says when each job started.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from interlane.metrics.outcomes import outcomes
from interlane.sim.experiment import Experiment, run
from interlane.traces.clusters import load_cluster
from interlane.traces.read import read_trace
from interlane.wiring import PolicyWords, choice_of

FIELDS = (
    "JobID|User|JobName|Partition|Submit|Start|End|State|ReqTRES|AllocTRES|NNodes|Timelimit|"
    "Priority"
)
HOUR_S = 3600

RATE = 5.5
"""Jobs in an hour of the day; a quarter of it at night."""


@dataclass(frozen=True)
class Program:
    """What a user runs again and again."""

    user: str
    name: str
    gpus: int
    type: str
    nodes: int
    minutes: float
    spread: float
    """How far run times go apart: the sigma of their logarithm."""
    weight: int
    """How often it is run, against the others."""
    limit_hours: int


PROGRAMS = (
    Program("ana", "train-resnet", 4, "a100", 1, 190, 0.15, 8, 24),
    Program("ana", "eval-resnet", 1, "", 1, 9, 0.2, 14, 24),
    Program("ben", "finetune-bert", 2, "a100", 1, 95, 0.1, 10, 12),
    Program("ben", "debug", 1, "", 1, 3, 1.0, 12, 1),
    Program("chi", "sweep", 1, "", 1, 26, 0.25, 40, 4),
    Program("dov", "gnn", 2, "", 1, 150, 0.5, 8, 24),
    Program("eva", "pretrain", 8, "a100", 2, 420, 0.1, 3, 48),
    Program("fay", "ctr-daily", 1, "t4", 1, 48, 0.05, 12, 2),
    Program("fay", "ctr-features", 0, "", 1, 18, 0.1, 12, 2),
    Program("gus", "notebook", 1, "", 1, 110, 1.1, 10, 8),
    Program("gus", "plots", 0, "", 1, 2, 0.5, 8, 1),
    Program("hal", "rl", 2, "", 1, 240, 0.7, 6, 48),
)


@dataclass(frozen=True)
class Submission:
    """One run of a program."""

    program: Program
    at_s: int
    length_s: int
    is_array: bool


def main() -> None:
    """Write both months."""
    for month, seed, first_id in ((4, 4, 1000), (5, 5, 2000)):
        begin = datetime(2024, month, 1)  # noqa: DTZ001 - an export has local times
        jobs = submissions(Random(seed), days=3)
        path = Path(f"{begin:%B}.txt".lower())
        path.write_text("\n".join(export(jobs, begin, first_id)) + "\n")
        print(f"{path}: {len(jobs)} jobs")


def submissions(rng: Random, days: int) -> list[Submission]:
    """Return what users submit, mostly by day."""
    weights = [program.weight for program in PROGRAMS]
    made = []
    for hour in range(24 * days):
        busy = 1.0 if 9 <= hour % 24 < 19 else 0.25
        for _ in range(round(rng.expovariate(1 / (RATE * busy)))):
            (program,) = rng.choices(PROGRAMS, weights)
            length_s = int(60 * program.minutes * rng.lognormvariate(0, program.spread)) + 1
            limit_s = program.limit_hours * HOUR_S
            at_s = hour * HOUR_S + rng.randrange(HOUR_S)
            is_array = program.name == "sweep"
            made.append(Submission(program, at_s, min(length_s, limit_s), is_array))
    return sorted(made, key=lambda job: job.at_s)


def export(jobs: list[Submission], begin: datetime, first_id: int) -> list[str]:
    """Return the lines of an export: every job, and the step in which it ran."""
    lines = [FIELDS]
    for number, (job, wait_s) in enumerate(zip(jobs, waits_s(jobs), strict=True), first_id):
        name = f"{number}_{number % 8}" if job.is_array else str(number)
        program = job.program
        start_s = job.at_s + round(wait_s)
        limit_s = program.limit_hours * HOUR_S
        state = "TIMEOUT" if job.length_s == limit_s else "COMPLETED"
        if program.name == "debug" and number % 5 == 0:
            state = "FAILED"
        moments = (job.at_s, start_s, start_s + job.length_s)
        submit, start, end = (stamp(begin, moment_s) for moment_s in moments)
        wanted, given = tres(program, program.type), tres(program, program.type or "t4")
        limit = f"{program.limit_hours // 24}-{program.limit_hours % 24:02}:00:00"
        priority = str(5000 + 7 * (number % 13))
        who = (name, program.user, program.name, "gpu" if program.gpus else "cpu")
        what = (state, wanted, given, str(program.nodes), limit, priority)
        lines.append("|".join((*who, submit, start, end, *what)))
        step = (
            "",
            "batch",
            "",
            start,
            start,
            end,
            state,
            "",
            given,
            str(program.nodes),
            "",
            "",
        )
        lines.append("|".join((f"{name}.batch", *step)))
    cancelled = stamp(begin, 3 * 24 * HOUR_S)
    never = ("ben", "debug", "gpu", cancelled, "None", cancelled, "CANCELLED by 1007")
    asked = tres(PROGRAMS[3], "")
    lines.append("|".join((str(first_id + len(jobs)), *never, asked, "", "1", "01:00:00", "0")))
    return lines


def stamp(begin: datetime, at_s: int) -> str:
    """Return a moment as Slurm writes it."""
    return (begin + timedelta(seconds=at_s)).strftime("%Y-%m-%dT%H:%M:%S")


def tres(program: Program, kind: str) -> str:
    """Return a request as Slurm writes it, for the whole job."""
    gpus = f"gres/gpu={program.gpus}," if program.gpus else ""
    if program.gpus and kind:
        gpus = f"gres/gpu:{kind}={program.gpus},{gpus}"
    cores = cpus(program)
    memory = f"mem={memory_gib(program)}G"
    return f"billing={cores},cpu={cores},{gpus}{memory},node={program.nodes}"


def cpus(program: Program) -> int:
    """Return the CPUs of a whole job."""
    return max(2, 4 * program.gpus)


def memory_gib(program: Program) -> int:
    """Return the memory of a whole job."""
    return max(8, 24 * program.gpus)


def waits_s(jobs: list[Submission]) -> list[float]:
    """Play the jobs first come, first served, and return how long each waited."""
    path = Path("make_sacct.csv")
    head = "job_id,submit_s,duration_s,instances,gpus,gpu_types,cpu_milli,memory_mib"
    rows = [
        f"{number},{job.at_s},{job.length_s},{job.program.nodes},"
        f"{job.program.gpus // job.program.nodes},{job.program.type.upper()},"
        f"{1000 * cpus(job.program) // job.program.nodes},"
        f"{1024 * memory_gib(job.program) // job.program.nodes}"
        for number, job in enumerate(jobs)
    ]
    path.write_text("\n".join((head, *rows)) + "\n")
    try:
        trace = read_trace(path)
        policy = choice_of(PolicyWords("fifo", "pack", "strict"))
        played = run(Experiment(trace, load_cluster("lab.yaml"), policy))
    finally:
        path.unlink()
    return [float(wait_s) for wait_s in outcomes(played.log).wait_s]


if __name__ == "__main__":
    main()
