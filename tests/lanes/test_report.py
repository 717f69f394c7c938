"""Reports of device daemons: written as documents, and read back by servers of any version."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.lanes.actions import MemoryDemand
from interlane.lanes.report import (
    DaemonReport,
    DeviceReport,
    LaneReport,
    ProcessReport,
    ProcessState,
    RunReport,
    RunTotal,
    UnreadableReport,
    document_of,
    report_of,
)

COUNTS = st.integers(0, 2**60)
TIMES = st.floats(0, 1e9)
WORDS = st.text(max_size=5)
DEMANDS = st.builds(MemoryDemand, COUNTS, COUNTS)

REPORTS = st.builds(
    DaemonReport,
    devices=st.lists(
        st.builds(
            DeviceReport,
            cores=st.lists(st.integers(0, 63), max_size=3).map(tuple),
            quantum_s=TIMES,
            busy_s=TIMES,
            switches_per_s=TIMES,
            lanes=st.lists(st.builds(LaneReport), max_size=2).map(tuple),
            processes=st.lists(
                st.builds(
                    ProcessReport,
                    booked=st.none() | DEMANDS,
                    measured=st.none() | DEMANDS,
                    run=st.builds(RunReport, COUNTS, TIMES, TIMES, TIMES),
                    attained_s=TIMES,
                ),
                max_size=2,
            ).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    run=st.none()
    | st.builds(RunTotal, COUNTS, TIMES, TIMES, TIMES, processes=COUNTS, needed=DEMANDS),
)


def with_news(document: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a document as a newer daemon might write it: more fields everywhere."""
    if isinstance(document, dict):
        return {name: with_news(value) for name, value in document.items()} | {"news": [1]}
    return [with_news(one) for one in document] if isinstance(document, list) else document


@given(REPORTS)
def test_what_is_written_is_read_back_also_by_a_version_that_knows_less(
    report: DaemonReport,
) -> None:
    document = json.loads(json.dumps(document_of(report)))

    assert report_of(document) == report
    assert report_of(with_news(document)) == report


def report() -> DaemonReport:
    process = ProcessReport(
        id="train.7",
        name="train",
        pid=7,
        state=ProcessState.QUEUED,
        why="It needs 9 bytes, of which 4 are free.",
        lane=None,
        priority=0,
        share_milli=250,
        is_declared=True,
        booked=None,
        measured=None,
        run=RunReport(),
        attained_s=0.0,
    )
    device = DeviceReport(
        *(0, "cpu", (0, 1), 96, 92, False, 0.02, 5, 1.5, 2, 0.5),
        lanes=(LaneReport(0, 40, ("other.3",), (), "other.3"),),
        processes=(process,),
    )
    run = RunTotal(3, 1.0, 0.5, 2.0, processes=1, needed=MemoryDemand(8, 2))
    return DaemonReport("/s", 4, "1.0", "fair", "turns", "complete", (device,), run)


def test_the_document_has_the_fields_that_people_read() -> None:
    document = document_of(report())
    (device,) = document["devices"]

    assert list(document) == [
        *("socket", "pid", "version", "order", "sharing", "journal", "devices", "run"),
    ]
    assert list(device) == [
        *("index", "device", "cores", "capacity_bytes", "booked_bytes", "recovering"),
        *("quantum_s", "iterations", "busy_seconds", "switches", "switches_per_s"),
        *("lanes", "jobs"),
    ]
    assert device["lanes"] == [
        {"lane": 0, "size_bytes": 40, "jobs": ["other.3"], "waiting": [], "holder": "other.3"}
    ]
    assert device["jobs"] == [
        {
            "job": "train.7",
            "name": "train",
            "pid": 7,
            "state": "queued",
            "why": "It needs 9 bytes, of which 4 are free.",
            "lane": None,
            "priority": 0,
            "share": 250,
            "is_declared": True,
            "persistent_bytes": None,
            "ephemeral_bytes": None,
            "measured_persistent_bytes": None,
            "measured_ephemeral_bytes": None,
            "iterations": 0,
            "busy_s": 0.0,
            "waited_s": 0.0,
            "present_s": 0.0,
            "attained_s": 0.0,
            "seen_persistent_bytes": None,
            "seen_ephemeral_bytes": None,
        }
    ]
    assert document["run"] == {
        "jobs": 1,
        "iterations": 3,
        "busy_s": 1.0,
        "waited_s": 0.5,
        "present_s": 2.0,
        "persistent_bytes": 8,
        "ephemeral_bytes": 2,
    }


def without(*path: str | int) -> dict[str, Any]:
    """Return the document without one of its fields."""
    document = document_of(report())
    *way, last = path
    found: Any = document
    for step in way:
        found = found[step]
    del found[last]
    return document


@pytest.mark.parametrize(
    "document",
    [
        without("sharing"),
        without("devices", 0, "cores"),
        without("devices", 0, "jobs", 0, "attained_s"),
        document_of(report()) | {"devices": 3},
    ],
)
def test_a_daemon_that_reports_too_little_is_named_with_what_to_do(
    document: dict[str, Any],
) -> None:
    with pytest.raises(UnreadableReport) as refused:
        report_of(document)

    assert str(refused.value) == (
        "the device daemon (version 1.0, process 4) reports something that this version cannot "
        "read; end it, and start one of this version."
    )
    assert refused.value.pid == 4


@pytest.mark.parametrize("document", [{}, [], None, {"pid": "x", "devices": []}])
def test_what_no_daemon_ever_reported_is_refused_too(document: Any) -> None:  # noqa: ANN401
    with pytest.raises(UnreadableReport) as refused:
        report_of(document)

    assert refused.value.pid is None


def test_what_was_done_since_is_unknown_once_a_process_has_ended() -> None:
    before = RunReport(10, 1.0, 1.0, 4.0)

    assert RunReport(15, 1.5, 2.0, 6.0).since(before) == RunReport(5, 0.5, 1.0, 2.0)
    assert RunReport(3, 0.1, 0.0, 1.0).since(before) is None
    assert (before + before).turns_slowdown == before.turns_slowdown == 4 / 3
