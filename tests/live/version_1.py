"""A database as version 1 of the tables was: made with plain SQL, in the shape that it had."""

import json
from typing import Any

from sqlalchemy import text

from interlane.live.store.database import engine_of

TABLES = (
    "CREATE TABLE log (seq BIGINT PRIMARY KEY, at_s DOUBLE PRECISION NOT NULL, "
    "kind VARCHAR(32) NOT NULL, job_id VARCHAR(128) NOT NULL, change TEXT NOT NULL)",
    "CREATE INDEX ix_log_job_id ON log (job_id)",
    "CREATE TABLE jobs (serial BIGINT PRIMARY KEY, id VARCHAR(128) NOT NULL UNIQUE, "
    'state VARCHAR(16) NOT NULL, "user" VARCHAR(64) NOT NULL, document TEXT NOT NULL)',
    "CREATE INDEX ix_jobs_state ON jobs (state)",
    'CREATE TABLE idempotency_keys ("user" VARCHAR(64) NOT NULL, key VARCHAR(255) NOT NULL, '
    'digest VARCHAR(64) NOT NULL, job_id VARCHAR(128) NOT NULL, PRIMARY KEY ("user", key))',
    "CREATE TABLE tokens (id VARCHAR(32) PRIMARY KEY, name VARCHAR(64) NOT NULL, "
    "role VARCHAR(16) NOT NULL, digest VARCHAR(64) NOT NULL, "
    "created_s DOUBLE PRECISION NOT NULL, revoked_s DOUBLE PRECISION)",
    'CREATE TABLE functions (name VARCHAR(64) PRIMARY KEY, "user" VARCHAR(64) NOT NULL, '
    "version INTEGER NOT NULL, deployed_s DOUBLE PRECISION NOT NULL, spec TEXT NOT NULL)",
    'CREATE TABLE drains (machine_id VARCHAR(255) PRIMARY KEY, "by" VARCHAR(64) NOT NULL, '
    "at_s DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE life (version INTEGER PRIMARY KEY, number INTEGER NOT NULL)",
)

GPU = {"machine": "here", "gpus": [0], "instances": 1, "task": 0}
MORE = {"machine": "here", "gpus": [1], "instances": 1, "task": 0}
WAITS: dict[str, Any] = {"state": "queued", "placement": None, "growing": 0}
BAND = {"guess_s": 60.0, "low_s": 30.0, "high_s": 120.0, "basis": "what its user expects"}


def placed(attempt: int, at_s: float) -> dict[str, Any]:
    held = {"state": "starting", "attempt": attempt, "placement": [GPU], "started_s": at_s}
    return {**held, "growth": 0, "reason": None}


def ended(state: str, at_s: float, **more: object) -> dict[str, Any]:
    return {"state": state, "ended_s": at_s, "placement": None, **more}


LIVES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "ends": [
        ("placed", placed(1, 0.0)),
        ("started", {"state": "running"}),
        ("ended", ended("succeeded", 0.0, exit_code=0, reason=None, use={"iterations": 7})),
    ],
    "fails": [
        ("placed", placed(1, 0.0)),
        ("start failed", {**WAITS, "reason": "no image"}),
        ("placed", placed(2, 0.0)),
        ("started", {"state": "running"}),
        ("ended", ended("failed", 0.0, exit_code=3, reason="It ended with exit code 3.")),
    ],
    "stopped": [
        ("placed", placed(1, 0.0)),
        ("started", {"state": "running"}),
        ("stop wished", {"state": "stopping", "reason": "It makes way for job ends-1."}),
        ("preempted", {**WAITS, "ran_s": 0.75}),
        ("placed", placed(2, 0.0)),
        ("started", {"state": "running"}),
        ("requeued", {**WAITS, "ran_s": 0.75, "reason": "It went with its machine."}),
    ],
    "grows": [
        ("placed", placed(1, 0.0)),
        ("started", {"state": "running"}),
        ("grow placed", {"placement": [GPU, MORE], "growing": 1, "growth": 1}),
        ("grow failed", {"placement": [GPU], "growing": 0}),
        ("grow placed", {"placement": [GPU, MORE], "growing": 1, "growth": 2}),
        ("grew", {"growing": 0}),
    ],
    "lost": [
        ("placed", placed(1, 0.0)),
        ("started", {"state": "running"}),
        ("start failed", {**WAITS, "reason": None}),
        ("cancelled", ended("cancelled", 0.0, cancelled_by="ann")),
    ],
    "cancelled": [
        ("placed", placed(1, 0.0)),
        ("cancel asked", {"state": "stopping", "cancelled_by": "bob"}),
        ("cancelled", ended("cancelled", 0.0, exit_code=None)),
    ],
    "refused": [
        ("refused", ended("refused", 0.0, reason="never fits: It asks for 9 GPUs. Ask less.")),
    ],
    "waits": [],
}
"""Every kind of entry, by the name of a job; moments are filled in."""


def write_version_1(url: str) -> dict[str, dict[str, Any]]:
    """Write such a database; return the documents of its records by id."""
    engine = engine_of(url)
    documents: dict[str, dict[str, Any]] = {}
    with engine.begin() as connection:
        for statement in TABLES:
            connection.execute(text(statement))
        seq = 0
        for serial, (name, life) in enumerate(LIVES.items(), start=1):
            entries = [("submitted", _submitted(name, serial)), *life]
            for kind, change in entries:
                seq += 1
                at_s = 1_000.0 + seq / 4
                told = _at(change, at_s)
                row = {"seq": seq, "at_s": at_s, "kind": kind, "job_id": f"{name}-{serial}"}
                connection.execute(
                    text("INSERT INTO log VALUES (:seq, :at_s, :kind, :job_id, :change)"),
                    {**row, "change": json.dumps(told)},
                )
                _fold(documents, f"{name}-{serial}", told)
        for document in documents.values():
            names = {name: document[name] for name in ("serial", "id", "state", "user")}
            connection.execute(
                text("INSERT INTO jobs VALUES (:serial, :id, :state, :user, :document)"),
                {**names, "document": json.dumps(document)},
            )
        connection.execute(text("INSERT INTO life VALUES (1, 5)"))
        connection.execute(text("INSERT INTO drains VALUES ('there', 'op', 7.5)"))
    engine.dispose()
    return documents


def _submitted(name: str, serial: int) -> dict[str, Any]:
    spec = {"name": name, "run": "true", "resources": {"gpu": {"count": 1}}}
    made = {"serial": serial, "name": name, "user": "ann", "queue": "default", "spec": spec}
    return {**made, "submitted_s": 1_000.0, **BAND, "key": None}


def _at(change: dict[str, Any], at_s: float) -> dict[str, Any]:
    """Return a change as it was made at a moment."""
    times: dict[str, Any] = {name: at_s for name in ("started_s", "ended_s") if name in change}
    return {**change, **times}


def _fold(documents: dict[str, dict[str, Any]], job_id: str, change: dict[str, Any]) -> None:
    new = {
        "id": job_id, "state": "queued", "version": 0, "attempt": 0, "placement": None,
        "growing": 0, "growth": 0, "started_s": None, "ended_s": None, "ran_s": 0.0,
        "exit_code": None, "reason": None, "cancelled_by": None, "use": None,
    }  # fmt: skip
    before = documents.get(job_id, new)
    documents[job_id] = {**before, **change, "version": before["version"] + 1}
