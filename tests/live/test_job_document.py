"""Whatever a valid job file says is the same job after it was stored and read."""

import json
from typing import Any

from hypothesis import given
from hypothesis.strategies import (
    DrawFn,
    booleans,
    composite,
    dictionaries,
    fixed_dictionaries,
    floats,
    from_regex,
    integers,
    just,
    lists,
    none,
    one_of,
    sampled_from,
    text,
)

from interlane.live.files.fields import LABEL_KEY, LABEL_VALUE, NAME, ROLE, VARIABLE
from interlane.live.files.job import program_of, read_spec, request_of
from interlane.live.store.record import JobRecord, document_record, dumped, record_document
from interlane.model import Cluster, JobId, Machine, MachineId

CLUSTER = Cluster("one", (Machine(MachineId("a"), "T4", 4, 8_000, 65_536, 16_384),))

commands = text(min_size=1, max_size=30).filter(lambda one: "\0" not in one)
shorts = text(min_size=1, max_size=20).filter(
    lambda one: one.isprintable() and one == one.strip()
)
variables = dictionaries(from_regex(VARIABLE, fullmatch=True), commands, max_size=2)
labels = dictionaries(
    from_regex(LABEL_KEY, fullmatch=True), from_regex(LABEL_VALUE, fullmatch=True), max_size=2
)
spans = one_of(integers(1, 3_000), floats(0.5, 3_000), just("90s"), just("1.5h"))


def some(**fields: Any) -> Any:  # noqa: ANN401
    """Return a strategy of documents that have some of these fields."""
    return fixed_dictionaries({}, optional=fields)


gpus = some(
    count=integers(0, 62),
    type=one_of(just("T4"), lists(sampled_from(["T4", "A100"]), max_size=2)),
    memory=sampled_from(["1GB", "12GiB", "4GiB..6GiB"]),
    compute=one_of(sampled_from(["300m", "0.5", "300m..1000m"]), floats(0.01, 1.0)),
)
resources = some(gpu=gpus, cpu=one_of(integers(0, 64), just("500m")), memory=just("1GB..2GB"))
topologies = sampled_from(
    [{}, {"same": "rack"}, {"same": "zone", "pack": "rack"}, {"spread": "zone"}]
)


@composite
def tasks(draw: DrawFn) -> list[dict[str, Any]]:
    """Return tasks of different roles, each with its own demand and command."""
    roles = draw(lists(from_regex(ROLE, fullmatch=True), min_size=1, max_size=3, unique=True))
    return [
        {
            "role": role,
            "count": (count := draw(integers(1, 5))),
            **draw(some(min=integers(1, count), env=variables)),
            "resources": {**draw(resources), "cpu": draw(integers(1, 8))},
            "run": draw(commands),
        }
        for role in roles
    ]


@composite
def jobs(draw: DrawFn) -> dict[str, Any]:
    """Return a valid job file, with roles or without."""
    job: dict[str, Any] = draw(
        some(
            group=shorts | none(),
            family=shorts,
            image=just("registry/torch:2"),
            queue=from_regex(NAME, fullmatch=True),
            priority=integers(0, 100),
            share=some(
                mode=sampled_from(["auto", "exclusive", "spatial"]), max_slowdown=just(2)
            ),
            time=some(expected=spans) | some(limit=spans),
            checkpoint=some(interval=spans, signal=just("SIGUSR1"), grace=just("60s")),
            env=variables,
            selectors=labels,
            tolerations=labels,
            topology=topologies,
            workdir=just("/tmp"),
        )
    )
    job["name"] = draw(from_regex(NAME, fullmatch=True))
    if draw(booleans()):
        return job | {"tasks": draw(tasks())}
    gang = draw(sampled_from([{}, {"nodes": 3}, {"nodes": 3, "min": 1}]))
    return job | {"run": draw(commands), "resources": draw(resources), "gang": gang}


@given(jobs())
def test_a_valid_job_is_the_same_after_it_was_stored(said: dict[str, Any]) -> None:
    job = read_spec(said)
    record = JobRecord(1, JobId("a-1"), job.name, "ann", job.queue, job, 0.0, 9.0, 9.0, 9.0)

    back = document_record(json.loads(dumped(record_document(record))))

    assert back == record
    assert back.job.document == job.document
    assert program_of(back.job) == program_of(job)
    assert request_of(back.job, CLUSTER, spans_machines=True) == request_of(
        job, CLUSTER, spans_machines=True
    )


@given(jobs())
def test_a_document_is_itself_a_valid_file(said: dict[str, Any]) -> None:
    job = read_spec(said)

    assert read_spec(job.document) == job
