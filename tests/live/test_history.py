"""The past of the live machine is a trace that can be played on the machine it was."""

import csv
import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

from tests.live.test_store import commit, entry, opened, submitted

from interlane.live.questions.history import trace_text
from interlane.live.store.store import Store
from interlane.model import (
    MILLI,
    Cancelled,
    Cluster,
    Finished,
    JobId,
    LogEntry,
    Machine,
    MachineId,
    Placement,
    Spot,
    Start,
    Submitted,
)
from interlane.testing.live import snapshot_of
from interlane.traces.cluster_file import cluster_document
from interlane.traces.clusters import load_cluster
from interlane.traces.read import read_trace

ONE = Machine(MachineId("here"), "EMULATED", 2, 4 * MILLI, 8_192, 4_096)
CLUSTER = Cluster("this machine", (ONE,))


def started(of: LogEntry, at: int) -> LogEntry:
    assert of.job_id is not None
    return entry(at, Start(of.job_id, Placement((Spot(ONE.id, (0,)),))))


def rows(store: Store, since_s: float = 0.0, now_s: float = 100.0) -> list[dict[str, str]]:
    return list(
        csv.DictReader(StringIO(trace_text(store, snapshot_of(CLUSTER, now_s=now_s), since_s)))
    )


def test_a_job_that_ended_ran_as_long_as_it_did(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/a.db") as store:
        first = submitted(1)
        commit(store, first)
        commit(store, started(first, 4))
        commit(store, entry(11, Finished(JobId("a-1")), exit_code=0))

        (row,) = rows(store)

    assert (row["duration_s"], row["waited_s"], row["submit_s"]) == ("7.0", "3.0", "0.0")


def test_a_job_that_waits_or_runs_is_taken_to_run_as_estimated(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/a.db") as store:
        waits, runs = submitted(1), submitted(2)
        commit(store, waits, runs)
        commit(store, started(runs, 60))

        lengths = [row["duration_s"] for row in rows(store)]

    assert lengths == ["1.0", "40.0"]  # the second has outrun its estimate


def test_jobs_that_never_had_a_place_and_those_of_long_ago_are_left_out(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/a.db") as store:
        old, gone, kept = submitted(1), submitted(50), submitted(51)
        commit(store, old, gone, kept)
        commit(store, entry(60, Cancelled(JobId("a-50"))))

        names = [row["job_id"] for row in rows(store, since_s=10.0)]

    assert names == [kept.job_id]


def test_a_job_that_an_engine_told_of_late_comes_when_it_was_submitted(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/a.db") as store:
        late = submitted(51)
        assert isinstance(late.what, Submitted)
        job = replace(late.what.job, submitted_s=20.0)
        commit(store, submitted(50), replace(late, what=Submitted(job)))

        times = [(row["job_id"], row["submit_s"]) for row in rows(store, since_s=10.0)]

    assert times == [("a-51", "0.0"), ("a-50", "30.0")]


def test_what_is_told_can_be_read_as_a_trace_and_a_cluster(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/a.db") as store:
        commit(store, submitted(1), submitted(2))
        (tmp_path / "live.csv").write_text(
            trace_text(store, snapshot_of(CLUSTER, now_s=9.0), 0.0)
        )
    (tmp_path / "live.yaml").write_text(json.dumps(cluster_document(CLUSTER)))

    assert read_trace(tmp_path / "live.csv").estimates == ("duration", "live_estimate")
    assert load_cluster(str(tmp_path / "live.yaml")) == CLUSTER


def test_a_job_of_two_roles_has_a_row_for_each(tmp_path: Path) -> None:
    tasks = [
        {"role": "ps", "resources": {"cpu": 1}},
        {"role": "worker", "count": 2, "min": 1, "resources": {"gpu": {}}},
    ]
    job = {"name": "a", "run": "true", "tasks": tasks, "family": "ctr", "group": "g"}
    made = submitted(1, spec=job)
    with opened(f"sqlite:///{tmp_path}/a.db") as store:
        commit(store, made)

        ps, worker = rows(store)

    asks = ("role", "instances", "instances_min", "gpus", "cpu_milli")
    assert [ps[name] for name in asks] == ["ps", "1", "1", "0", "1000"]
    assert [worker[name] for name in asks] == ["worker", "2", "1", "1", "0"]
    assert {(row["job_id"], row["group"], row["family"]) for row in (ps, worker)} == {
        (made.job_id, "g", "ctr")
    }
    assert ps["topology"] == "same=machine"
