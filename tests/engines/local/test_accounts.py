"""Two accounts on one machine: neither reads, signals, fills or names what is the other's."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from interlane.device.daemon import Daemon
from interlane.device.inventory import emulated
from interlane.device.lanes import Lanes, LaneSettings, short_folder
from interlane.device.rendezvous import admit_users
from interlane.device.settings import DeviceSettings
from interlane.device.specs import DeviceSpec
from interlane.engines.local.accounts import Account, Accounts, accounts_of
from interlane.engines.local.engine import LocalEngine
from interlane.engines.local.launch import Secrets
from interlane.live.auth import Denied, Role, Tokens
from interlane.live.driver import Driver
from interlane.live.driver.inbox import Key
from interlane.live.files.job import read_spec
from interlane.live.port import Attempt
from interlane.live.store.record import JobRecord
from interlane.model import InvalidInput
from interlane.model.lifecycle import JobState
from interlane.testing.live import driving, ended, serving, spec, this_machine
from interlane.testing.waiting import until

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can run others' jobs")

ANN, BOB = Account("60001", 60001, 60001, ()), Account("60002", 60002, 60002, ())


@pytest.fixture
def top() -> Iterator[Path]:
    """Return a folder that every account can reach: what is in it must protect itself."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@dataclass(frozen=True)
class Site:
    """A server's folder, and what drives it."""

    state: Path
    work: Path
    driver: Driver

    def run(self, user: str, command: str, **more: object) -> JobRecord:
        return self.driver.submit(spec(user, command, gpus=0, **more), user).result(60)

    def printed(self, record: JobRecord) -> str:
        output = self.driver.engine.output(Attempt(record.id, 1, record.uid), 0, 1 << 16)
        return output.data.decode()


@pytest.fixture
def site(top: Path) -> Iterator[Site]:
    state, work = top / "state", top / "work"
    state.mkdir(mode=0o700)
    (state / "token").write_text("il_admin")
    (state / "token").chmod(0o600)
    for owner, name in (("of/ann", "ANN_KEY"), ("of/bob", "BOB_KEY"), ("shared", "ALL_KEY")):
        folder = state / "secrets" / owner
        folder.mkdir(parents=True)
        (folder / name).write_text(f"value of {name}\n")
    (state / "secrets" / "ADMIN_KEY").write_text("value of ADMIN_KEY\n")
    accounts = Accounts({"ann": ANN, "bob": BOB}, trusts_users=False, work=work)
    (machine,) = this_machine(2)
    engine = LocalEngine(state, emulated(machine), accounts=accounts)
    with driving(state, engine=engine) as driver:
        yield Site(state, work, driver)


@needs_root
def test_jobs_run_as_the_account_of_their_user_in_folders_of_their_own(site: Site) -> None:
    record = site.run(
        "ann",
        "id -u; id -g; id -G; pwd; echo $TMPDIR; echo $HOME; echo x > file; "
        "echo y > $TMPDIR/z; "
        "ls -ld . $TMPDIR | cut -c1-10; echo err > /dev/stderr; umask",
    )

    assert ended(site.driver, record).state is JobState.SUCCEEDED
    said = site.printed(record).split()
    assert said[:3] == ["60001"] * 3
    workdir, temporary, home = map(Path, said[3:6])
    assert workdir.parent.parent == site.work
    assert home == workdir
    assert temporary == workdir.parent / "tmp"
    assert said[6:] == ["drwx------", "drwx------", "err", "0077"]
    assert (workdir / "file").stat().st_uid == 60001
    until(lambda: not temporary.exists(), "the end of what was temporary")
    assert stat.S_IMODE(workdir.parent.stat().st_mode) == 0o711
    assert workdir.parent.stat().st_uid == 0


TRIES = """
export SHIM=$PPID
try() {{ if sh -c "$2" > /dev/null 2>&1; then echo "GOT $1"; else echo "no $1"; fi; }}
try token 'cat {state}/token'
try list 'ls {state}'
try database 'cat {state}/state.db'
try secrets 'cat {state}/secrets/of/ann/ANN_KEY'
try shared-secret-file 'cat {state}/secrets/shared/ALL_KEY'
try runs 'ls {state}/runs'
try log 'cat {state}/runs/{job}/1/log.0'
try forge 'echo "{{}}" > {state}/runs/{job}/1/ended'
try forge-own 'echo "{{}}" > {state}/runs/$INTERLANE_JOB_ID.$INTERLANE_JOB_UID/1/ended'
try beside 'echo "{{}}" > ../ended || echo x > ../claim || echo x > ../y'
try names 'ls {work}'
try work 'ls {their}/work || cat {their}/work/diary'
try temporary 'ls {their}/tmp || touch {their}/tmp/x'
try fill 'echo x > {their}/work/x || echo x > {their}/x || echo x > {work}/x'
try environment 'cat /proc/{pid}/environ'
try memory 'head -c 1 /proc/{pid}/mem || ls /proc/{pid}/fd || ls /proc/{pid}/cwd/'
try server-environment 'cat /proc/{server}/environ'
try signal 'kill -9 {pid} || kill -TERM {pid}'
try signal-shim 'kill -9 {shim}'
try signal-own-shim 'kill -9 $SHIM || kill -STOP $SHIM'
try signal-server 'kill -USR1 {server}'
try leave-group 'for file in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do \
  echo 0 > $file && exit 0; done; exit 1'
try output-of-theirs 'echo x > /proc/{pid}/fd/1'
try root 'su -c id || sudo -n id'
try replace-temporary 'rmdir $TMPDIR && ln -s {their}/work $TMPDIR'
try hard-link 'ln {their}/work/diary $TMPDIR/diary || ln /etc/shadow $TMPDIR/shadow'
try trace 'cat /proc/{pid}/stack || cat /proc/{pid}/syscall || ls /proc/{shim}/fd'
try slow-down 'renice -n 19 -p {pid} || taskset -p 1 {pid} || prlimit --pid {pid} --cpu=1'
try spare-itself 'echo -1000 > /proc/self/oom_score_adj'
try more-processes 'for file in /sys/fs/cgroup/*/interlane-*/pids.max; do \
  echo 4000 > $file && exit 0; done; exit 1'
try freeze 'for file in /sys/fs/cgroup/*/interlane-*/freezer.state; do \
  echo FROZEN > $file && exit 0; done; exit 1'
try own-output 'echo fine > /dev/stdout'
"""


@needs_root
def test_neither_account_reads_signals_or_fills_what_is_the_others(site: Site) -> None:
    victim = site.run(
        "ann",
        "echo private > diary; echo $$ $PPID $(pwd); exec sleep 1000",
        env={"PASSWORD": "canary-4711"},
        secrets=["ANN_KEY"],
    )
    until(lambda: "work" in site.printed(victim), "the victim")
    pid, shim, workdir = site.printed(victim).split()

    thief = site.run(
        "bob",
        TRIES.format(
            state=site.state,
            work=site.work,
            job=f"{victim.id}.{victim.uid}",
            pid=pid,
            shim=shim,
            their=Path(workdir).parent,
            server=os.getpid(),
        ),
    )

    assert ended(site.driver, thief).state is JobState.SUCCEEDED
    said = site.printed(thief).splitlines()
    assert [line for line in said if line.startswith("GOT")] == ["GOT own-output"]
    assert len(said) == TRIES.count("\ntry ")
    assert site.driver.open_record(victim.id) is not None
    assert "canary" not in site.printed(thief)


@needs_root
def test_a_job_that_kills_all_it_can_kills_itself_only(site: Site) -> None:
    victim = site.run("ann", "echo up; exec sleep 1000")
    until(lambda: "up" in site.printed(victim), "the victim")

    raging = ended(site.driver, site.run("bob", "kill -9 -1; kill -STOP -1; exit 3", retries=0))

    assert (raging.state, raging.exit_code) == (JobState.FAILED, 3)
    assert site.driver.open_record(victim.id) is not None
    after = ended(site.driver, site.run("bob", "true"))
    assert after.state is JobState.SUCCEEDED


@needs_root
def test_a_job_works_in_no_folder_that_is_closed_to_its_account(site: Site) -> None:
    victim = site.run("ann", "echo private > diary; pwd; exec sleep 1000")
    until(lambda: "work" in site.printed(victim), "the victim")
    for folder in (site.printed(victim).strip(), str(site.state), "/root"):
        thief = site.run("bob", "cat diary token; ls", workdir=folder)

        assert ended(site.driver, thief).state is JobState.FAILED
        assert "private" not in site.printed(thief)
        assert "could not start: Permission denied" in site.printed(thief)


@needs_root
def test_one_accounts_key_is_no_key_to_anothers_job(site: Site) -> None:
    def asked(user: str, run: str) -> JobRecord:
        key = Key("same", "digest")
        return site.driver.submit(spec("a", run, gpus=0), user, key).result(60)

    mine, theirs = asked("ann", "true"), asked("bob", "true")

    assert mine.id != theirs.id
    assert (mine.user, theirs.user) == ("ann", "bob")
    assert asked("ann", "true").id == mine.id


TRAIN = """
import os, torch
torch.manual_seed(0)
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20):
    loss = model(torch.ones(8, 32)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print("trained", os.getuid(), loss.item())
"""


def python_of(uid: int) -> tuple[str, dict[str, str]]:
    """Return a Python with PyTorch that an account can reach, and what it needs for that."""
    torch = pytest.importorskip("torch")
    env = {"PYTHONPATH": str(Path(torch.__file__).parents[1])}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/python{version}"):
        with suppress(OSError):
            if subprocess.call((python, "-c", "import torch"), user=uid, env=env) == 0:
                return python, env
    pytest.skip("other accounts can reach no Python with PyTorch")


@needs_root
def test_pytorch_trains_under_other_accounts_on_a_device_that_they_share(top: Path) -> None:
    accounts = Accounts({"ann": ANN, "bob": BOB}, trusts_users=False, work=top / "work")
    python, env = python_of(ANN.uid)
    (machine,) = this_machine(1)
    uids = frozenset({ANN.uid, BOB.uid})
    settings = LaneSettings(emulated(machine).shared, top / "lanes", "fair", "turns", uids)
    engine = LocalEngine(top / "state", emulated(machine), Lanes(settings), accounts=accounts)
    script = top / "train.py"
    script.write_text(TRAIN)
    share = {"resources": {"gpu": {"compute": "500m", "memory": "64MiB"}}}
    with driving(top / "state", engine=engine) as driver:
        site = Site(top / "state", top / "work", driver)
        job = read_spec({"name": "t", "run": f"{python} {script}", "env": env, **share})
        both = [driver.submit(job, user).result(60) for user in ("ann", "bob")]
        done = [ended(driver, one) for one in both]
        said = [site.printed(one).split() for one in both]

        assert [one.state for one in done] == [JobState.SUCCEEDED] * 2, said
        assert [words[1] for words in said] == ["60001", "60002"]
        assert said[0][2] == said[1][2], "the same loss, bit for bit"


@needs_root
def test_a_job_of_an_account_that_leaves_processes_behind_is_ended_whole(site: Site) -> None:
    record = site.run("ann", "(setsid env -i sleep 1000 &); sleep 0.2; echo up; sleep 1000")
    until(lambda: "up" in site.printed(record), "the job")

    site.driver.cancel(record.id, "ann").result(60)

    assert ended(site.driver, record).state is JobState.CANCELLED
    theirs = [
        path for path in Path("/proc").glob("[0-9]*") if path.exists() and _uid(path) == ANN.uid
    ]
    assert not theirs


def _uid(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return 0


@pytest.mark.parametrize("name", ["BOB_KEY", "ADMIN_KEY", "NOBODYS_KEY"])
def test_a_user_names_no_secret_of_anybody_else(top: Path, name: str) -> None:
    secrets = Secrets(top)
    for file in ("of/ann/ANN_KEY", "of/bob/BOB_KEY", "shared/ALL_KEY", "ADMIN_KEY"):
        (top / file).parent.mkdir(parents=True, exist_ok=True)
        (top / file).write_text(f"value of {file}\n")

    assert secrets.values(["ANN_KEY", "ALL_KEY"], "ann") == {
        "ANN_KEY": "value of of/ann/ANN_KEY",
        "ALL_KEY": "value of shared/ALL_KEY",
    }
    for user in ("ann", "../bob/../ann", "..", "shared", "bob/../../of/ann"):
        with pytest.raises(InvalidInput, match="has no value for"):
            secrets.values([name], user)
    assert secrets.values(["ADMIN_KEY"], "admin") == {"ADMIN_KEY": "value of ADMIN_KEY"}


@needs_root
def test_on_a_server_of_root_only_admins_and_those_with_an_account_submit(
    site: Site,
) -> None:
    job = {"name": "a", "run": "id -u"}
    with serving(site.driver) as (url, tokens):
        made = Tokens(site.driver.store, site.driver.now_s)

        def answer(token: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {token}"}
            return httpx.post(f"{url}/api/v1/jobs", json=job, headers=headers, timeout=180)

        refused = answer(tokens[Role.USER])
        admins = answer(tokens[Role.ADMIN])
        anns = site.driver.submit(spec(run="id -u"), "ann").result(60)

    assert refused.status_code == 403
    assert "has no account of its own here" in refused.json()["detail"]
    assert "--trust-users" in refused.json()["detail"]
    assert admins.status_code == 201
    assert len(made) > 0
    assert ended(site.driver, anns).state is JobState.SUCCEEDED
    assert site.printed(anns).strip() == "60001"


def test_functions_of_users_are_refused_where_they_would_run_as_root() -> None:
    with pytest.raises(Denied, match="only admins may deploy"):
        Accounts(trusts_users=False).check_function(is_admin=False)
    Accounts(trusts_users=False).check_function(is_admin=True)
    Accounts(trusts_users=True).check_function(is_admin=False)


@needs_root
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ann: root", "jobs never run as root"),
        ("ann: 0", "jobs never run as root"),
        ("ann: nobody-of-this-name", "must be an account"),
        ("ann: true", "must be an account"),
        ("ann: -5", "must be an account"),
        ("- ann", "lines such as"),
        ("{", "cannot be read as YAML"),
    ],
)
def test_a_file_of_accounts_that_makes_no_sense_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "accounts"
    file.write_text(text)

    with pytest.raises(InvalidInput, match=says):
        accounts_of(file, trusts_users=False, work=None)


@needs_root
def test_a_file_of_accounts_that_others_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "accounts"
    file.write_text("ann: 60001")
    file.chmod(0o666)

    with pytest.raises(InvalidInput, match="nobody else may write"):
        accounts_of(file, trusts_users=False, work=None)

    file.chmod(0o600)
    assert accounts_of(file, trusts_users=False, work=None).of("ann") == ANN


@needs_root
def test_accounts_reach_the_device_daemon_and_strangers_do_not(top: Path) -> None:
    socket = top / "lanes.sock"
    admit_users(socket, {ANN.uid})
    daemon = Daemon(DeviceSettings((DeviceSpec("cpu", 1 << 20),), socket))
    asks = (
        "import os, socket, sys\n"
        "os.setuid(int(sys.argv[1]))\n"
        "line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "line.connect(sys.argv[2])\n"
        "line.settimeout(1.0)\n"
        "try: print(b'serves user' in line.recv(4096))\n"
        "except TimeoutError: print('is served')\n"
    )

    def answer(uid: int) -> str:
        command = ("/usr/bin/env", "python3", "-I", "-S", "-c", asks, str(uid), str(socket))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
            while asking.poll() is None:
                daemon.turn(wait_s=0.05)
            assert asking.stdout is not None
            return asking.stdout.read().strip()

    assert (answer(ANN.uid), answer(BOB.uid)) == ("is served", "True")
    admit_users(socket, (), everybody=True)
    assert answer(BOB.uid) == "is served"
    assert not any(path.stat().st_mode & 0o077 for path in top.iterdir() if path != socket)
    daemon.close()


def test_jobs_of_other_accounts_find_the_daemon_where_they_can_reach_it(top: Path) -> None:
    alone = LaneSettings((), top)

    assert alone.socket.parent == top
    assert replace(alone, uids=frozenset({ANN.uid})).socket.parent == short_folder()
