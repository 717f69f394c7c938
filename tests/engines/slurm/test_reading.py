"""What Slurm prints, whichever version, and whatever users have put into it."""

import json
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as some

from interlane.engines.slurm.claims import HeldClaim, LaunchedClaim, read_claim
from interlane.engines.slurm.glances import (
    WrittenComments,
    read_arrived,
    read_glance,
    settled,
    updated,
)
from interlane.engines.slurm.gres import Gres, hostnames, read_gres
from interlane.engines.slurm.machines import gpus_of, held_by, machine_of
from interlane.engines.slurm.reading import Skipped, SlurmJob, read_jobs, read_nodes
from interlane.engines.slurm.runs import numbers_of
from interlane.engines.slurm.wanted import TASKS_AHEAD, spec_of, tasks_of
from interlane.live.port import Attempt
from interlane.model import InvalidInput, JobId, MachineId

OLD = {
    "job_id": 7,
    "job_state": "RUNNING",
    "user_id": 0,
    "user_name": "ann",
    "submit_time": 100,
    "start_time": 110,
    "partition": "gpu",
    "name": "train-12",
    "node_count": 1,
    "cpus": 4,
    "memory_per_node": 2048,
    "nodes": "n1",
    "gres_detail": ["gpu:emu.0:0(IDX:),gpu:emu.1:1(IDX:1)"],
    "tres_per_node": "gres:gpu:1",
    "time_limit": 90,
    "exit_code": 256,
    "admin_comment": "interlane n=1 r=0 s=3 t=99.000 q=100 b=1 a=gres:gpu:1",
    "priority": 5,
}
NEW = OLD | {
    "job_id": {"set": True, "infinite": False, "number": 7},
    "job_state": ["RUNNING", "COMPLETING"],
    "submit_time": {"set": True, "infinite": False, "number": 100},
    "time_limit": {"set": True, "infinite": False, "number": 90},
    "exit_code": {"return_code": {"set": True, "number": 3}, "signal": {"id": {"set": False}}},
    "comment": {"administrator": "interlane", "user": "mine"},
}
NODE = {
    "name": "n1",
    "state": "mixed",
    "state_flags": [],
    "cpus": 16,
    "real_memory": 64_000,
    "gres": "gpu:emu.1:1,gpu:emu.0:1,shard:emu.0:1000,shard:emu.1:1000",
    "partitions": ["gpu"],
    "active_features": "fast,wide",
}


def read(**changed: object) -> SlurmJob:
    (job,) = read_jobs({"jobs": [OLD | changed]}, Skipped())
    return job


def test_a_job_is_read_as_slurm_22_prints_it() -> None:
    job = read()

    assert (job.id, job.key, job.user, job.nodes) == ("7", "7.100", "ann", ("n1",))
    assert (job.limit_s, job.exit_code, job.memory_mib) == (5_400.0, 1, 2048)


def test_a_job_is_read_as_newer_versions_print_it() -> None:
    (job,) = read_jobs({"jobs": [NEW]}, Skipped())

    assert (job.number, job.state, job.limit_s) == (7, "COMPLETING", 5_400.0)
    assert (job.exit_code, job.admin_comment, job.comment) == (3, "interlane", "mine")


def test_a_job_that_slurm_requeued_is_called_as_before() -> None:
    assert read(submit_time=900, restart_cnt=1).key == read().key


def test_a_job_that_was_killed_has_the_code_that_shells_give() -> None:
    assert read(exit_code=9).exit_code == 137


@pytest.mark.parametrize(
    "changed",
    [
        {"job_state": "DREAMING"},
        {"job_state": None},
        {"job_id": "seven"},
        {"submit_time": None},
        {"nodes": "n[0-"},
        {"nodes": "n[0-99999999]"},
        {"gres_detail": ["gpu:(((1"]},
        {"tres_per_node": "gres:gpu:1;rm -rf /"},
        {"user_id": None, "user_name": None},
    ],
)
def test_what_cannot_be_understood_is_left_out_and_counted(changed: dict[str, object]) -> None:
    skipped = Skipped()

    jobs = read_jobs({"jobs": [OLD | changed, OLD]}, skipped)

    assert [job.number for job in jobs] == [7]
    assert sum(skipped.count.values()) == 1


@pytest.mark.parametrize("document", [None, [], {}, {"jobs": 3}, {"jobs": [None, 4, "x", []]}])
def test_a_document_that_is_none_shows_no_jobs(document: object) -> None:
    assert read_jobs(document, Skipped()) == []


@given(some.text(max_size=300))
def test_no_name_makes_a_job_that_cannot_be_read(name: str) -> None:
    job = read(name=name, command=name, partition=name or "gpu")

    spec = spec_of(job, 0)

    assert json.loads(json.dumps(spec.document))["name"] == spec.name


@given(some.text(max_size=100))
def test_resources_are_read_or_refused(text: str) -> None:
    try:
        found = read_gres(text)
    except ValueError:
        return
    assert all(one.count >= 0 and one.name for one in found)


@given(some.text(max_size=100))
def test_a_comment_is_a_claim_or_none(text: str) -> None:
    for comment in (text, f"interlane {text}"):
        claim = read_claim(comment)
        assert claim is None or read_claim(str(claim)) == claim


def test_claims_are_read_as_they_were_written() -> None:
    held = HeldClaim(3, 1, 12, 1_700_000_000.125, 90.0, False, "gres:gpu:2", "gpu:emu.0:1")
    attempt = Attempt(JobId("train-12"), 2, "0123456789abcdef")
    launched = LaunchedClaim(attempt, 1, 4, 0, 12, 1_700_000_000.0)

    assert read_claim(str(held)) == held
    assert read_claim(str(launched)) == launched


def test_a_run_that_slurm_began_by_itself_is_an_attempt_of_its_own() -> None:
    assert HeldClaim(3, 1, 0, 0.0, 0.0).attempt_number(1) == 3
    assert HeldClaim(3, 1, 0, 0.0, 0.0).attempt_number(2) == 5  # we may have asked for 4
    assert HeldClaim(3, 1, 0, 0.0, 0.0, begins=False).attempt_number(1) == 5


def test_gpus_with_a_number_in_their_type_are_told_apart_by_it() -> None:
    (node,) = read_nodes({"nodes": [NODE]}, Skipped())
    gpus = gpus_of(node.gres)

    assert gpus.types == ("emu.0", "emu.1")
    assert (gpus.models, gpus.shards, gpus.pinned) == (("emu", "emu"), (1000, 1000), True)
    machine = machine_of(node)
    assert (machine.id, machine.gpu_type, machine.gpus) == (MachineId("n1"), "emu", 2)
    assert machine.label("feature/fast") == "yes"


def test_gpus_of_one_type_are_not_told_apart() -> None:
    gpus = gpus_of(read_gres("gpu:a100:8(S:0-1)"))

    assert (len(gpus.models), gpus.models[0], gpus.pinned) == (8, "a100", False)


def test_what_a_job_has_is_its_gpus_by_number() -> None:
    gpus = gpus_of(read_gres(str(NODE["gres"])))

    assert dict(held_by(read(), 0, gpus).gpus) == {1: 1000}
    shard = read(gres_detail=["shard:300(IDX:0)"])
    assert dict(held_by(shard, 0, gpus).gpus) == {0: 300}


@pytest.mark.parametrize(
    ("state", "flags", "expected"),
    [
        ("idle", [], (True, False)),
        ("idle", ["DRAIN"], (True, True)),
        ("mixed", ["NOT_RESPONDING"], (True, True)),
        ("mixed", ["SOMETHING_NEW"], (True, True)),
        ("down", [], (False, False)),
        (["IDLE", "DRAIN"], [], (True, True)),
    ],
)
def test_states_of_nodes_are_understood(
    state: object, flags: list[str], expected: tuple[bool, bool]
) -> None:
    (node,) = read_nodes({"nodes": [NODE | {"state": state, "state_flags": flags}]}, Skipped())

    assert (node.is_there, node.is_drained) == expected


def test_a_node_in_a_state_that_nobody_knows_keeps_what_it_has_and_is_counted() -> None:
    skipped = Skipped()

    (node,) = read_nodes({"nodes": [NODE | {"state": "mel\nted"}]}, skipped)

    assert (node.is_there, node.is_drained) == (True, True)
    (why,) = skipped.count
    assert why == "Node 'n1' takes nothing new: state 'mel\\nted' is not known"


def test_a_table_of_what_changes_has_a_line_for_each_job() -> None:
    line = "7|FAILED|5|100|gpu|0|gres:gpu:1|N/A|110|130|768|n1|"
    ((number, words),) = read_glance(f"{line}\n|x\n8|RUNNING\n\nforged|{line}\n")

    job = updated(read(), words)

    assert number == 7
    assert job is not None
    assert (job.state, job.exit_code, job.ended_s, job.nodes) == ("FAILED", 3, 130.0, ("n1",))
    assert updated(read(), [*words[:3], "900", *words[4:]]) is None  # its number was used again
    assert updated(read(), [*words[:2], "high", *words[3:]]) is None


@given(some.text(max_size=200))
def test_no_table_of_what_changes_is_a_crash(text: str) -> None:
    for _, words in read_glance(f"{text}\n7|{text}"):
        updated(read(), words)


ARRIVED = (
    *("9", "PENDING", "0", "100", "gpu", "0", "gres:gpu:1", "N/A", "5", "ann", "2", "4"),
    *("cpu=4,mem=4G,node=2,gres/gpu=2", "1-02:00:10", "interlane", "/tmp/out", "/bin/x", "t-1"),
    *("N/A", "N/A", "(null)", "", "(null)", "(null)"),
)
MARKED = "|1a2b|"


def line_of(**changed: str) -> str:
    at = {"number": 0, "state": 1, "comment": 14, "name": 17, "array": 18, "nodes": 21}
    words = list(ARRIVED)
    for name, value in changed.items():
        words[at[name]] = value
    return "".join(f"{word}{MARKED}" for word in words) + "\n"


def test_a_job_that_has_just_come_is_read_from_its_line_whatever_its_name() -> None:
    forged = f"x\n10|RUNNING|{line_of(number='11').replace(MARKED, '|')}\n"

    first, second = read_arrived(line_of(name=forged) + line_of(number="12"), MARKED)

    assert (first.id, first.name, first.user, second.id) == ("9", forged, "ann", "12")
    assert (first.node_count, first.memory_mib, first.limit_s) == (2, 2048, 93_610.0)
    assert (first.is_held, first.key, first.asked) == (True, "9.100", (Gres("gpu", "", 1),))


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "RUNNING"},
        {"comment": "somebody's"},
        {"array": "0-9"},
        {"nodes": "n1"},
        {"number": "nine"},
    ],
)
def test_a_job_of_which_there_is_more_to_know_waits_for_a_look_at_everything(
    changed: dict[str, str],
) -> None:
    assert not list(read_arrived(line_of(**changed), MARKED))


@given(some.text(max_size=200))
def test_no_table_of_new_jobs_is_a_crash(text: str) -> None:
    list(read_arrived(f"{text}{MARKED}\n{line_of(number=text)}", MARKED))


def test_a_requeued_job_is_its_last_run_until_that_has_left_its_nodes() -> None:
    leaving = read(job_state="COMPLETING", restart_cnt=1)

    assert settled(leaving, read()).restarts == 0
    assert settled(leaving, None).restarts == 0  # its claim says so
    assert settled(leaving, read(job_state="PENDING")).restarts == 0  # it ran unseen
    assert settled(leaving, read(restart_cnt=1)).restarts == 1
    assert settled(read(job_state="PENDING", restart_cnt=1), read()).restarts == 1
    line = "7|COMPLETING|5|100|gpu|1|gres:gpu:1|N/A|110|130|0|n1|"
    ((_, words),) = read_glance(line)
    job = updated(read(), words)
    assert job is not None
    assert (job.state, job.restarts) == ("COMPLETING", 0)


def test_what_we_have_written_counts_until_a_look_shows_it() -> None:
    written, job = WrittenComments(), read()
    comment = str(HeldClaim(2, 0, 3, 99.0, 100.0))

    written.wrote(job.id, comment)
    assert written.over(job).is_asked_for(2)
    written.seen(0.0)  # a look that began before
    assert written.over(job).is_asked_for(2)
    written.seen(inf)
    assert written.over(job).is_asked_for(1)


def test_a_job_is_the_attempt_that_was_asked_for_or_one_that_nobody_can_ask_for() -> None:
    released_by_others = read(admin_comment="", comment="interlane")

    assert numbers_of(read()) == [1]
    assert numbers_of(read(restart_cnt=2)) == [1, 3, 5]
    assert numbers_of(released_by_others) == [2]


def test_lists_of_nodes_are_expanded() -> None:
    assert hostnames("n[0-2,07],x") == ["n0", "n1", "n2", "n07", "x"]
    assert hostnames("r[1-2]n[08-09]") == ["r1n08", "r1n09", "r2n08", "r2n09"]


def test_a_huge_array_waits_here_a_part_at_a_time() -> None:
    job = read(
        job_state="PENDING", array_job_id=7, array_task_id=None, array_task_string="3-9999%4"
    )

    tasks = list(tasks_of(job))

    assert [task.id for task in tasks[:2]] == ["7_3", "7_4"]
    assert len(tasks) == TASKS_AHEAD


def test_a_job_asks_for_what_its_user_asked_for_whatever_we_have_written_over_it() -> None:
    written_over = read(tres_per_node="gres:gpu:emu.1:1")

    gpu = spec_of(written_over, 0).resources.gpu

    assert gpu is not None
    assert (gpu.count, gpu.type) == (1, [])


def test_shards_are_a_share_of_one_gpu() -> None:
    gpu = spec_of(read(admin_comment="", tres_per_node="gres:shard:250"), 1000).resources.gpu

    assert gpu is not None
    assert (gpu.count, gpu.compute) == (1, "250m")
    with pytest.raises(InvalidInput, match="1001 shards"):
        spec_of(read(admin_comment="", tres_per_node="gres:shard:1001"), 1000)


def test_resources_have_the_numbers_of_their_gpus() -> None:
    assert read_gres("gpu:a100:2(IDX:0-1),shard:5") == [
        Gres("gpu", "a100", 2, (0, 1)),
        Gres("shard", "", 5),
    ]
