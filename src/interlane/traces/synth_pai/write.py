"""Write the seven tables, instances a bounded number at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import numpy as np
import polars as pl

from interlane.model import InvalidFile
from interlane.traces.read.pai2020 import TABLES
from interlane.traces.read.source import unreadable
from interlane.traces.synth_pai import shares as of
from interlane.traces.synth_pai.deal import Flags, Ints
from interlane.traces.synth_pai.machines import (
    BANDWIDTH,
    HEAT_HOURS,
    Singles,
    UsageMeter,
    draw_heat,
    mean_over,
    measured,
)
from interlane.traces.synth_pai.names import names
from interlane.traces.synth_pai.plan import Scope, plan
from interlane.traces.synth_pai.population import ROLES, SERVER
from interlane.traces.synth_pai.use import Uses, draw_uses

if TYPE_CHECKING:
    from interlane.traces.synth_pai.place import Floor

BATCH: Final = 200_000
"""Instances that are made at a time, give or take one gang."""

SENSED: Final = 0.41
"""Instances in the sensor table: 3.03 of 7.5 million."""
METERED: Final = 0.66
"""Of these, the ones in the machines' table."""
SLOW_IS_BUSY, FAST_IS_IDLE = 0.20, 0.85
"""Ctr instances that are slow for busy CPUs, and fast for idle ones, of all such (22)."""

Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Written:
    """Rows of the tables."""

    jobs: int
    tasks: int
    instances: int
    sensors: int
    metrics: int
    machines: int
    users: int


def write_tables(scope: Scope, folder: Path, progress: Progress = _silent) -> Written:
    """Draw the trace and write it to a directory, which is made where it is not there."""
    with _files(folder) as files:
        return _Draw(scope, files, progress).write()


@contextmanager
def _files(folder: Path) -> Iterator[dict[str, IO[bytes]]]:
    """Give a file for each table; they get their names when all are whole."""
    if folder.exists() and not folder.is_dir():
        raise InvalidFile(str(folder), "this is a file; name a directory for the tables.")
    parts = {table: folder / f"{table}.csv.part" for table in TABLES}
    opened: dict[str, IO[bytes]] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table, part in parts.items():
            opened[table] = part.open("wb")
        yield opened
        for table, part in parts.items():
            opened[table].close()
            part.replace(folder / f"{table}.csv")
            (folder / f"{table}.header").write_text(",".join(TABLES[table]) + "\n")
    except OSError as error:
        raise unreadable(folder, error) from None
    finally:
        for table, file in opened.items():
            file.close()
            parts[table].unlink(missing_ok=True)


@dataclass(frozen=True)
class _Batch:
    """Instances that start one after another."""

    task: Ints
    """Number of each instance's task."""
    within: Ints
    """Number of the task within the batch."""
    number: Ints
    """Number of the instance, over all."""
    start_s: Ints
    end_s: Ints
    failed: Flags


@dataclass(frozen=True)
class _Watched:
    """Instances whose machines were measured, kept until all machines' hours are known."""

    number: Ints
    machine: Ints
    start_s: Ints
    end_s: Ints


class _Draw:
    """One trace while it is made."""

    def __init__(self, scope: Scope, files: dict[str, IO[bytes]], progress: Progress) -> None:
        self._scope = scope
        self._files = files
        self._tell = progress
        made = plan(scope)
        self._machines, self._groups, self._habits = made.machines, made.groups, made.habits
        self._jobs, self._tasks, self._end_s = made.jobs, made.tasks, made.end_s
        self._rng, self._metrics_rng = made.batches_rng, made.metrics_rng
        self._hours = int((self._end_s.max() - of.BEGIN_S) // of.HOUR_S) + 2
        self._heat = draw_heat(made.heat_rng, self._machines, self._hours)
        self._meter = UsageMeter(self._machines.count, of.BEGIN_S, self._hours)
        self._machine_names = self._named("machine", np.arange(self._machines.count))
        self._sensors = 0

    def write(self) -> Written:
        self._write_machines()
        self._write_jobs()
        self._write_tasks()
        watched = self._write_instances()
        self._write_metrics(watched)
        return Written(
            len(self._jobs.group),
            len(self._tasks.job),
            int(self._tasks.instances.sum()),
            self._sensors,
            len(watched.number),
            self._machines.count,
            len(np.unique(self._groups.user)),
        )

    def _named(self, kind: str, numbers: Ints) -> pl.Series:
        return names(kind, self._scope.seed, numbers)

    def _append(self, table: str, columns: dict[str, object], digits: int | None = 4) -> None:
        frame = pl.DataFrame({name: columns[name] for name in TABLES[table]})
        frame.write_csv(self._files[table], include_header=False, float_precision=digits)

    # -- what is known at once ------------------------------------------------------

    def _write_machines(self) -> None:
        machines = self._machines
        self._append(
            "pai_machine_spec",
            {
                "machine": self._machine_names,
                "gpu_type": _texts(of.KINDS, machines.kind),
                "cap_cpu": machines.cpus,
                "cap_mem": machines.memory_gib,
                "cap_gpu": machines.gpus,
            },
        )

    def _write_jobs(self) -> None:
        jobs, groups = self._jobs, self._groups
        every = np.arange(len(jobs.group))
        insts, users = self._named("inst", every), self._named("user", groups.user[jobs.group])
        users = users.str.head(12)
        self._append(
            "pai_job_table",
            {
                "job_name": self._named("job", every),
                "inst_id": insts,
                "user": users,
                "status": _status(jobs.failed),
                "start_time": jobs.submit_s,
                "end_time": self._end_s,
            },
        )
        specs = _texts((*of.KINDS, ""), np.where(groups.names_type[jobs.group], jobs.kind, -1))
        self._append(
            "pai_group_tag_table",
            {
                "inst_id": insts,
                "user": users,
                "gpu_type_spec": specs,
                "group": self._named("group", jobs.group),
                "workload": _texts(of.WORKLOADS, groups.workload[jobs.group]),
            },
        )

    def _write_tasks(self) -> None:
        tasks = self._tasks
        self._append(
            "pai_task_table",
            {
                "job_name": self._named("job", tasks.job),
                "task_name": self._roles(np.arange(len(tasks.job))),
                "inst_num": tasks.instances,
                "status": _status(self._jobs.failed[tasks.job]),
                "start_time": tasks.start_s,
                "end_time": tasks.start_s + tasks.run_s,
                "plan_cpu": tasks.cpu,
                "plan_mem": tasks.memory_gib,
                "plan_gpu": pl.Series(tasks.gpu).replace(0, None),
                "gpu_type": _texts(of.KINDS, tasks.kind),
            },
            digits=None,
        )

    def _roles(self, task: Ints) -> pl.Series:
        tasks = self._tasks
        role = np.where(tasks.serves[task], SERVER, self._groups.role[tasks.group[task]])
        return _texts(ROLES, role)

    # -- what is made batch by batch ------------------------------------------------

    def _write_instances(self) -> _Watched:
        floor = self._floor()
        total, done = int(self._tasks.instances.sum()), 0
        kept: list[_Watched] = []
        for batch in self._batches():
            kept.append(self._write_batch(batch, floor))
            done += len(batch.task)
            self._tell(done, total)
        return _Watched(
            *(
                np.concatenate([getattr(one, column) for one in kept])
                for column in ("number", "machine", "start_s", "end_s")
            )
        )

    def _floor(self) -> "Floor":
        from interlane.traces.synth_pai.place import Floor

        machines, tasks = self._machines, self._tasks
        last_s = int(self._end_s.max()) + 60
        minutes = np.zeros(last_s // 60 + 2, np.int64)
        np.add.at(minutes, tasks.start_s // 60, tasks.instances)
        np.add.at(minutes, (tasks.start_s + tasks.run_s) // 60 + 1, -tasks.instances)
        most = int(np.cumsum(minutes).max()) + int(tasks.instances.max()) + 1
        return Floor(
            kind=machines.kind,
            gpus=machines.gpus,
            cpu=machines.cpus * 100,
            kinds=len(of.KINDS),
            most_running=most,
            last_s=last_s,
        )

    def _batches(self) -> Iterator[_Batch]:
        """Cut the tasks into batches and unfold each into its instances."""
        tasks, rng = self._tasks, self._rng
        reached = np.cumsum(tasks.instances)
        begin = 0
        while begin < len(reached):
            before = int(reached[begin] - tasks.instances[begin])
            end = max(begin + 1, int(np.searchsorted(reached, before + BATCH)))
            some = np.arange(begin, end)
            task = np.repeat(some, tasks.instances[some])
            start_s = tasks.start_s[task]
            # Instances of a gang end together, give or take what tidying up takes.
            early = rng.random(len(task)) ** 4 * 0.02 * tasks.run_s[task]
            end_s = start_s + np.maximum(tasks.run_s[task] - early.astype(np.int64), 1)
            first = np.append(True, task[1:] != task[:-1])
            end_s[first] = (tasks.start_s + tasks.run_s)[task[first]]
            failed = self._jobs.failed[tasks.job[task]]
            number = before + np.arange(len(task))
            yield _Batch(task, task - begin, number, start_s, end_s, failed)
            begin = end

    def _write_batch(self, batch: _Batch, floor: "Floor") -> _Watched:
        tasks, rng = self._tasks, self._rng
        task = batch.task
        hour = int(batch.start_s[0] - of.BEGIN_S) // of.HOUR_S
        machine, card = floor.place(
            batch.start_s,
            batch.end_s,
            task=task,
            kind=tasks.kind[task],
            gpu=tasks.gpu[task],
            cpu=tasks.cpu[task],
            lean=self._leanings(batch),
            heat=self._heat[:, hour // HEAT_HOURS].astype(float),
            rng=rng.integers(0, 2**62, len(task)),
        )
        uses = draw_uses(
            rng,
            self._habits,
            tasks.group[task],
            batch.within,
            tasks.gpu[task],
            tasks.cpu[task],
            tasks.memory_gib[task],
            tasks.kind[task],
            self._groups.needs_card[tasks.group[task]],
        )
        self._meter.add(machine, batch.start_s, batch.end_s, uses.cpu, uses.gpu)
        self._write_rows(batch, machine)
        sensed = np.flatnonzero(rng.random(len(tasks.job[task])) < SENSED)
        self._sensors += len(sensed)
        self._write_sensors(batch, machine, card, uses, sensed)
        seen = sensed[rng.random(len(sensed)) < METERED]
        return _Watched(
            batch.number[seen], machine[seen], batch.start_s[seen], batch.end_s[seen]
        )

    def _leanings(self, batch: _Batch) -> Ints:
        """Put ctr instances that were slow on busy machines, and fast ones on idle ones."""
        tasks = self._tasks
        group = tasks.group[batch.task]
        ran = (batch.end_s - batch.start_s) / self._groups.typical_s[group]
        ctr = self._groups.workload[group] == of.CTR
        drawn = self._rng.random(len(group))
        slow = ctr & (ran > 1.2) & (drawn < SLOW_IS_BUSY)
        fast = ctr & (ran < 0.8) & (drawn < FAST_IS_IDLE)
        return np.asarray(slow.astype(np.int64) - fast)

    def _write_rows(self, batch: _Batch, machine: Ints) -> None:
        job = self._tasks.job[batch.task]
        self._append(
            "pai_instance_table",
            {
                "job_name": self._named("job", job),
                "task_name": self._roles(batch.task),
                "inst_name": self._named("name", batch.number),
                "worker_name": self._named("worker", batch.number),
                "inst_id": self._named("inst", job),
                "status": _status(batch.failed),
                "start_time": batch.start_s,
                "end_time": batch.end_s,
                "machine": self._machine_names.gather(machine),
            },
        )

    def _write_sensors(
        self, batch: _Batch, machine: Ints, card: Ints, uses: Uses, seen: Ints
    ) -> None:
        rng = self._rng
        task = batch.task[seen]
        job = self._tasks.job[task]
        ran_s = (batch.end_s - batch.start_s)[seen]
        read = ran_s * rng.lognormal(np.log(2e5), 1.8, len(seen))
        wrote = ran_s * rng.lognormal(np.log(4e4), 1.8, len(seen))
        cards = ("", *(f"/dev/nvidia{number}" for number in range(8)))
        self._append(
            "pai_sensor_table",
            {
                "job_name": self._named("job", job),
                "task_name": self._roles(task),
                "worker_name": self._named("worker", batch.number[seen]),
                "inst_id": self._named("inst", job),
                "machine": self._machine_names.gather(machine[seen]),
                "gpu_name": _texts(cards, card[seen] + 1),
                "cpu_usage": uses.cpu[seen],
                "gpu_wrk_util": uses.gpu[seen],
                "avg_mem": uses.memory[seen],
                "max_mem": uses.memory_max[seen],
                "avg_gpu_wrk_mem": uses.card[seen],
                "max_gpu_wrk_mem": uses.card_max[seen],
                "read": np.rint(read).astype(np.int64),
                "write": np.rint(wrote).astype(np.int64),
                "read_count": np.rint(read / 65_536).astype(np.int64),
                "write_count": np.rint(wrote / 32_768).astype(np.int64),
            },
        )

    # -- what is known when all has run ---------------------------------------------

    def _write_metrics(self, watched: _Watched) -> None:
        cpu_used, gpu_used, running = self._meter.levels()
        cpu, gpu = measured(self._machines, self._heat, cpu_used, gpu_used, running)
        for begin in range(0, len(watched.number), BATCH):
            some = slice(begin, begin + BATCH)
            self._write_metered(
                _Watched(
                    watched.number[some],
                    watched.machine[some],
                    watched.start_s[some],
                    watched.end_s[some],
                ),
                cpu,
                gpu,
                running,
            )

    def _write_metered(
        self, watched: _Watched, cpu: Singles, gpu: Singles, running: Singles
    ) -> None:
        rng, machine = self._metrics_rng, watched.machine
        count = len(machine)
        first = (watched.start_s - of.BEGIN_S) // of.HOUR_S
        last = (watched.end_s - of.BEGIN_S) // of.HOUR_S
        busy, gpu_busy, workers = (
            mean_over(level, machine, first, last) for level in (cpu, gpu, running)
        )
        kernel = busy * rng.uniform(0.08, 0.25, count)
        gpus, cores = self._machines.gpus[machine], self._machines.cpus[machine]
        link = np.select([gpus == 8], [BANDWIDTH[8]], BANDWIDTH[2])
        self._append(
            "pai_machine_metric",
            {
                "worker_name": self._named("worker", watched.number),
                "machine": self._machine_names.gather(machine),
                "start_time": watched.start_s,
                "end_time": watched.end_s,
                "machine_cpu_iowait": busy * rng.lognormal(np.log(1e-3), 0.7, count),
                "machine_cpu_kernel": kernel,
                "machine_cpu_usr": busy - kernel,
                "machine_gpu": gpu_busy,
                "machine_load_1": cores * busy / 100 * rng.uniform(0.9, 1.6, count),
                "machine_net_receive": link * np.minimum(rng.lognormal(-3.2, 0.8, count), 0.9),
                "machine_num_worker": np.maximum(workers, 1.0),
                "machine_cpu": busy,
            },
        )


def _texts(words: tuple[str, ...], index: Ints) -> pl.Series:
    """Return the word at each index; nothing, where the word is empty."""
    return pl.Series([word or None for word in words], dtype=pl.String).gather(
        index % len(words)
    )


def _status(failed: Flags) -> pl.Series:
    return _texts(("Terminated", "Failed"), failed.astype(np.int64))
