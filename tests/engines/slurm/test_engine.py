"""The engine on a real Slurm: where jobs run, how they end, and who else decides."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interlane.engines.slurm.commands import SlurmSilent
from interlane.engines.slurm.engine import SlurmEngine
from interlane.engines.slurm.make import slurm as make_slurm
from interlane.engines.slurm.manifests import SlurmSite, release_script, submit_lua
from interlane.engines.slurm.session import SlurmSettings
from interlane.engines.slurm.wanted import TASKS_AHEAD
from interlane.engines.slurm.watch import HEARTBEAT
from interlane.live.driver import Driver
from interlane.live.driver.state import SchedulerPlan, attempt_of
from interlane.live.questions.etas import Etas
from interlane.live.store.record import JobRecord
from interlane.live.store.store import Store
from interlane.live.view import View
from interlane.model import InvalidInput, JobId
from interlane.model.lifecycle import JobState
from interlane.testing.engines import _scheduler
from interlane.testing.live import spec
from interlane.testing.slurm_cluster import SlurmCluster, SlurmShape, lacking, slurm
from interlane.testing.waiting import PATIENCE_S, until
from interlane.wiring import played_starts

OURS = ("--hold", "--comment=interlane", "--mem=100M")
AWAY_S = 30.0
SHOWS = "#!/bin/sh\necho on $SLURMD_NODENAME gpu $CUDA_VISIBLE_DEVICES\n"
LASTS = "#!/bin/sh\ntrap 'exit 143' TERM\nwhile :; do sleep 0.1; done\n"

MakeDriver = Callable[..., Driver]


@pytest.fixture
def serve(tmp_path: Path, on_cluster: SlurmCluster) -> Iterator[MakeDriver]:
    """Starts drivers on the private Slurm, which is empty before and after."""
    clear(on_cluster)
    with ExitStack() as stack:

        def made(**changed: object) -> Driver:
            settings = {
                "partitions": frozenset({"gpu"}),
                "trusts_users": True,
                "idle_s": 0.5,
                "busy_s": 0.1,
                "share": 1.0,
                **changed,
            }
            engine = SlurmEngine(tmp_path / "state", SlurmSettings(**settings))  # type: ignore[arg-type]
            store = Store(f"sqlite:///{tmp_path}/state.db")
            driver = Driver(store, SchedulerPlan(_scheduler), engine, observe_every_s=1.0)
            driver.start()
            stack.callback(store.close)
            stack.callback(driver.close)
            return driver

        yield made
    clear(on_cluster)


def clear(cluster: SlurmCluster) -> None:
    cluster.run("scancel", "--quiet", "--user=root")
    until(lambda: not cluster.run("squeue", "--noheader", "--all").strip(), "an empty queue")


def record_of(driver: Driver, job: str, *states: JobState) -> JobRecord:
    """Wait until a job is in one of some states."""

    def is_so() -> bool:
        record = driver.store.job(job)
        return record is not None and record.state in states

    until(is_so, f"job {job} that is {states}")
    found = driver.store.job(job)
    assert found is not None
    return found


def printed(driver: Driver, record: JobRecord) -> str:
    return driver.engine.output(attempt_of(record), 0, 1000).data.decode()


def test_a_share_that_sbatch_asked_for_runs_on_the_gpu_that_was_chosen(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    first = on_cluster.submit(*OURS, "--gres=gpu:1", script=LASTS)
    taken = record_of(driver, first, JobState.RUNNING).placement
    second = on_cluster.submit(*OURS, "--gres=shard:300", script=SHOWS)

    done = record_of(driver, second, JobState.SUCCEEDED)

    assert taken is not None
    (spot,) = taken.spots
    node, gpu = printed(driver, done).split()[1::2]
    assert (node, gpu) != (spot.machine, f"{spot.gpus[0]}")
    placed = [one for one in driver.store.whole_log() if one.job_id == second]
    assert any(f"machine='{node}', gpus=({gpu},)" in repr(one.what) for one in placed)


def test_a_job_of_ours_gets_its_environment_and_no_variable_of_the_server(
    serve: MakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_SECRET", "token")
    driver = serve()
    run = "echo $GREETING; echo secret=$SERVER_SECRET; echo rank $RANK"
    job = spec(run=run, env={"GREETING": 'it\'s "quoted"\n$(id)'}, workdir=str(tmp_path))
    record = driver.submit(job, "ann").result(PATIENCE_S)

    done = record_of(driver, record.id, JobState.SUCCEEDED)

    assert printed(driver, done) == 'it\'s "quoted" $(id)\nsecret=\nrank 0\n'


def test_a_gang_begins_together_on_two_nodes_and_knows_itself(
    serve: MakeDriver, tmp_path: Path
) -> None:
    driver = serve()
    run = f"echo $SLURMD_NODENAME $WORLD_SIZE > {tmp_path}/rank.$RANK; sleep 0.5"
    job = spec(run=run, resources={"gpu": {"count": 2}}, gang={"nodes": 2})
    record = driver.submit(job, "ann").result(PATIENCE_S)

    record_of(driver, record.id, JobState.SUCCEEDED)

    said = {(tmp_path / f"rank.{rank}").read_text() for rank in (0, 1)}
    assert said == {"n0 2\n", "n1 2\n"}


def test_a_job_with_a_name_that_is_a_command_hurts_nobody(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    name = "a\"b\n$(touch /tmp/interlane-was-here)'; JobId=1 |"
    job = on_cluster.submit(*OURS, f"--job-name={name}", script=SHOWS)

    done = record_of(driver, job, JobState.SUCCEEDED)

    assert done.job.name == "a-b-touch-tmp-interlane-was-here-jobid-1"
    assert not Path("/tmp/interlane-was-here").exists()


def test_the_tasks_of_an_array_are_jobs_of_their_own(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    array = on_cluster.submit(*OURS, "--array=3-5", "--gres=gpu:1", script=SHOWS)

    for task in (3, 4, 5):
        record_of(driver, f"{array}_{task}", JobState.SUCCEEDED)


def test_a_job_waits_for_what_it_depends_on(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    first = on_cluster.submit(*OURS, script=LASTS)
    record_of(driver, first, JobState.RUNNING)
    second = on_cluster.submit(*OURS, f"--dependency=afterany:{first}", script=SHOWS)
    seen = driver.engine.observe(())

    assert second not in {one.job_id for one in seen.wanted}
    on_cluster.run("scancel", first)
    record_of(driver, first, JobState.CANCELLED)
    record_of(driver, second, JobState.SUCCEEDED)


def test_a_job_that_makes_way_waits_again_and_runs_again(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    weak = on_cluster.submit(*OURS, "--nodes=1", "--gres=gpu:2", script=LASTS)
    other = on_cluster.submit(*OURS, "--nodes=1", "--gres=gpu:2", script=LASTS)
    for one in (weak, other):
        record_of(driver, one, JobState.RUNNING)
    job = spec(run="sleep 1", resources={"gpu": {"count": 2}}, priority=90)
    strong = driver.submit(job, "ann").result(PATIENCE_S)

    record_of(driver, strong.id, JobState.SUCCEEDED)

    def both_run() -> bool:
        records = [driver.store.job(one) for one in (weak, other)]
        return all(one is not None and one.state is JobState.RUNNING for one in records)

    until(both_run, "both that run again")
    restarts = [on_cluster.run("scontrol", "show", "job", one) for one in (weak, other)]
    assert sum("Restarts=1" in one for one in restarts) == 1


def test_what_is_cancelled_here_is_cancelled_there(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    runs = on_cluster.submit(*OURS, script=LASTS)
    record_of(driver, runs, JobState.RUNNING)
    waits = on_cluster.submit(*OURS, "--nodes=2", "--cpus-per-task=4", script=LASTS)
    record_of(driver, waits, JobState.QUEUED)

    for one in (runs, waits):
        driver.cancel(one, "root").result(PATIENCE_S)  # type: ignore[arg-type]

    for one in (runs, waits):
        until(lambda one=one: on_cluster.state(one) == "CANCELLED", "a cancelled job")  # type: ignore[misc]
        record_of(driver, one, JobState.CANCELLED)


def test_a_job_that_somebody_else_released_is_taken_up_where_it_runs(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    on_cluster.run("scontrol", "update", "NodeName=n[0-1]", "State=DRAIN", "Reason=test")
    try:
        driver = serve()
        job = on_cluster.submit(*OURS, script=LASTS)
        record_of(driver, job, JobState.QUEUED)
        on_cluster.run("scontrol", "release", job)
    finally:
        on_cluster.run("scontrol", "update", "NodeName=n[0-1]", "State=RESUME")

    record = record_of(driver, job, JobState.RUNNING)

    assert record.placement is not None
    assert on_cluster.state(job) == "RUNNING"


def test_a_job_that_an_administrator_sends_elsewhere_is_known_to_be_there(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    on_cluster.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    try:
        job = on_cluster.submit(*OURS, "--gres=gpu:1", script=LASTS)
        until(lambda: "Reason=PartitionDown" in _shown(on_cluster, job), "a released job")
        chosen = re.search(r"ReqNodeList=(n\d)", _shown(on_cluster, job))
        assert chosen is not None
        other = "n1" if chosen[1] == "n0" else "n0"
        on_cluster.run("scontrol", "update", f"JobId={job}", f"ReqNodeList={other}")
    finally:
        on_cluster.run("scontrol", "update", "PartitionName=gpu", "State=UP")

    def is_known() -> bool:
        record = record_of(driver, job, JobState.RUNNING)
        assert record.placement is not None
        return [spot.machine for spot in record.placement.spots] == [other]

    until(is_known, "a record that follows Slurm")
    assert f" NodeList={other} " in " ".join(_shown(on_cluster, job).split())


def test_an_administrator_who_writes_over_our_comment_ends_no_job(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    job = on_cluster.submit(*OURS, script=LASTS)
    record_of(driver, job, JobState.RUNNING)

    on_cluster.run("scontrol", "update", f"JobId={job}", "AdminComment=call me, Ann")

    until(lambda: "AdminComment=interlane n=1" in _shown(on_cluster, job), "the claim again")
    assert record_of(driver, job, JobState.RUNNING).attempt == 1
    assert "Restarts=0" in _shown(on_cluster, job)


def test_a_job_that_slurm_requeues_runs_again_where_we_say(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    job = on_cluster.submit(*OURS, script=LASTS)
    record_of(driver, job, JobState.RUNNING)

    on_cluster.run("scontrol", "requeue", job)

    def runs_again() -> bool:
        record = driver.store.job(job)
        return record is not None and record.attempt > 1 and record.state is JobState.RUNNING

    until(runs_again, "a second attempt")
    until(lambda: on_cluster.state(job) == "RUNNING", "a job that runs again")
    assert "Restarts=1" in _shown(on_cluster, job)


def test_a_job_that_says_where_it_goes_is_left_to_slurm(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    job = on_cluster.submit(*OURS, "--nodelist=n1", script=SHOWS)

    until(lambda: on_cluster.state(job) == "COMPLETED", "a job that Slurm runs")

    assert driver.store.job(job) is None


def test_a_job_that_slurm_has_no_leave_for_is_held_again_and_says_why(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve(launch_s=2.0)
    on_cluster.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    try:
        job = on_cluster.submit(*OURS, script=SHOWS)
        until(lambda: "PartitionDown" in (driver.lacking(JobId(job)) or ""), "a reason")
        until(lambda: "Priority=0 " in _shown(on_cluster, job), "a job that is held again")
    finally:
        on_cluster.run("scontrol", "update", "PartitionName=gpu", "State=UP")

    record_of(driver, job, JobState.SUCCEEDED)


def test_what_slurm_counts_for_itself_is_respected_and_told(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve(launch_s=2.0)
    first = on_cluster.submit(*OURS, "--licenses=tool:1", script=LASTS)
    record_of(driver, first, JobState.RUNNING)
    second = on_cluster.submit(*OURS, "--licenses=tool:1", script=SHOWS)

    until(lambda: "Licenses" in (driver.lacking(JobId(second)) or ""), "a reason")
    assert on_cluster.state(second) == "PENDING"
    on_cluster.run("scancel", first)

    record_of(driver, second, JobState.SUCCEEDED)


def test_a_job_that_its_user_cancels_before_it_is_released_never_runs(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve(launch_s=60.0)
    on_cluster.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    try:
        job = on_cluster.submit(*OURS, script=SHOWS)
        until(lambda: "PartitionDown" in _shown(on_cluster, job), "a released job")
        on_cluster.run("scancel", job)
        record = record_of(driver, job, JobState.CANCELLED)
    finally:
        on_cluster.run("scontrol", "update", "PartitionName=gpu", "State=UP")

    assert record.cancelled_by == "root"
    assert on_cluster.state(job) == "CANCELLED"


def test_a_huge_array_and_odd_resources_are_taken_in_part_or_left_to_slurm(
    serve: MakeDriver, on_cluster: SlurmCluster, caplog: pytest.LogCaptureFixture
) -> None:
    driver = serve()
    odd = on_cluster.submit(*OURS, "--gres=shard:1500", script=SHOWS)
    array = on_cluster.submit(
        *OURS, "--nodes=2", "--gres=gpu:2", "--array=0-9999%2", script=LASTS
    )

    until(lambda: driver.store.job(f"{array}_0") is not None, "the first task")
    why = f"Job {odd} is left to Slurm: Job {odd} asks for 1500 shards"
    until(lambda: why in caplog.text, "a sentence")
    until(lambda: "AdminComment=Left: " in _shown(on_cluster, odd), "a job that is let go")

    assert len(driver.open_records()) < 2 * TASKS_AHEAD
    on_cluster.run("scancel", array, odd)


def test_jobs_of_another_partition_take_what_they_have(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    theirs = on_cluster.submit(
        "--partition=other", "--nodelist=n0", "--gres=gpu:emu.1:1", "--mem=100M", script=LASTS
    )
    until(lambda: on_cluster.state(theirs) == "RUNNING", "a job of others")
    driver = serve()

    (taken,) = driver.snapshot().machines.occupied.values()

    assert (taken.machine_id, taken.cpu_milli, taken.memory_mib) == ("n0", 1_000, 100)
    assert [(one.index, one.milli) for one in taken.gpus] == [(1, 1_000)]


def test_a_controller_that_is_away_for_a_while_costs_no_job(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    driver = serve()
    runs = on_cluster.submit(*OURS, script=LASTS)
    record_of(driver, runs, JobState.RUNNING)
    on_cluster.stop_controller()
    try:
        back_s = time.monotonic() + AWAY_S
        with pytest.raises(SlurmSilent, match="squeue says"):
            driver.engine.observe(())
        until(lambda: time.monotonic() > back_s, "a controller that is away for long")
        assert record_of(driver, runs, JobState.RUNNING).attempt == 1
    finally:
        on_cluster.start_controller()
    later = on_cluster.submit(*OURS, script=SHOWS)

    record_of(driver, later, JobState.SUCCEEDED)
    assert record_of(driver, runs, JobState.RUNNING).attempt == 1


def test_nothing_is_changed_by_looking_on(serve: MakeDriver, on_cluster: SlurmCluster) -> None:
    held = on_cluster.submit(*OURS, script=SHOWS)
    runs = on_cluster.submit("--mem=100M", "--gres=gpu:1", script=LASTS)
    until(lambda: on_cluster.state(runs) == "RUNNING", "a job that Slurm runs")
    shown = [on_cluster.run("scontrol", "show", "job", one) for one in (held, runs)]

    driver = serve(dry_run=True, partitions=frozenset())
    record = record_of(driver, runs, JobState.RUNNING)
    waits = record_of(driver, held, JobState.QUEUED)
    short = on_cluster.submit("--mem=100M", script="#!/bin/sh\nexit 3\n")
    failed = record_of(driver, short, JobState.FAILED)

    assert record.placement is not None
    assert [spot.gpus for spot in record.placement.spots] == [(0,)]
    assert record.submitted_s <= (record.started_s or 0.0)
    assert (waits.attempt, failed.exit_code) == (0, 3)
    with pytest.raises(InvalidInput, match="only looks on"):
        driver.submit(spec(run="true"), "ann")
    with pytest.raises(InvalidInput, match="only looks on"):
        driver.cancel(JobId(held), "root")
    etas = Etas(driver.snapshot, driver.store, played_starts)
    why = View(driver, etas).why_now(JobId(held)).refusal
    assert why is not None
    assert "It would start now on n0" in why.reason
    again = [on_cluster.run("scontrol", "show", "job", one) for one in (held, runs)]
    assert [_lasting(one) for one in again] == [_lasting(one) for one in shown]


def test_who_looked_on_and_then_schedules_lets_go_of_what_is_not_theirs(
    serve: MakeDriver, on_cluster: SlurmCluster
) -> None:
    theirs = on_cluster.submit("--partition=other", "--mem=100M", script=LASTS)
    looks_on = serve(dry_run=True, partitions=frozenset())
    record_of(looks_on, theirs, JobState.RUNNING)
    looks_on.close()
    driver = serve()

    record = record_of(driver, theirs, JobState.CANCELLED)

    assert (record.cancelled_by, on_cluster.state(theirs)) == (None, "RUNNING")
    assert "slurm decides about it by itself" in (record.reason or "")


def _lasting(shown: str) -> list[str]:
    """Return what of a job does not change by itself."""
    changes = ("RunTime=", "LastSchedEval=", "EligibleTime=", "StartTime=")
    return [one for one in shown.split() if not one.startswith(changes)]


def test_a_partition_that_there_is_not_is_refused(
    on_cluster: SlurmCluster, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="partition 'gpus' is not known; did you mean 'gpu'"):
        make_slurm(tmp_path, "gpus", 1.0, dry_run=False, trusts_users=False)
    with pytest.raises(InvalidInput, match="--partition"):
        make_slurm(tmp_path, None, 1.0, dry_run=False, trusts_users=False)


def test_what_a_dead_server_holds_is_released_and_new_jobs_are_not_held(tmp_path: Path) -> None:
    """The whole way: the snippet holds, a server is killed, and the timer releases."""
    why = lacking()
    if why is not None:
        pytest.skip(why)
    state = tmp_path / "state"
    site = SlurmSite(("gpu",), state, release_s=30)
    shape = SlurmShape(lua=submit_lua(site))
    with slurm(shape) as cluster:
        words = (sys.executable, "-m", "interlane", "up", "--engine", "slurm")
        options = ("--partition", "gpu", "--port", "0", "--no-pages", "--state", str(state))
        with subprocess.Popen(
            (*words, *options), env=cluster.env, stderr=subprocess.DEVNULL
        ) as server:
            until((state / HEARTBEAT).exists, "a server that is alive")
            runs = cluster.submit("--mem=100M", script=LASTS)
            until(lambda: cluster.state(runs) == "RUNNING", "a job that the server released")
            waits = cluster.submit("--mem=100M", "--nodes=2", "--exclusive", script=SHOWS)
            until(lambda: "AdminComment=interlane" in _shown(cluster, waits), "a held job")
            server.send_signal(signal.SIGKILL)
        script = tmp_path / "interlane-release"
        script.write_text(release_script(site))
        subprocess.run(("sh", str(script)), env=cluster.env, check=True)
        assert "Priority=0 " in _shown(cluster, waits)  # it may only be slow

        (state / HEARTBEAT).write_text(f"{time.time() - 31:.0f}\n")
        subprocess.run(("sh", str(script)), env=cluster.env, check=True)
        cluster.run("scancel", runs)
        until(lambda: cluster.state(waits) == "COMPLETED", "a job that was released")
        later = cluster.submit("--mem=100M", script=SHOWS)
        until(lambda: cluster.state(later) == "COMPLETED", "a job that was not held")


def _shown(cluster: SlurmCluster, job: str) -> str:
    return cluster.run("scontrol", "show", "job", job)
