"""A real Kubernetes control plane on this machine: etcd, API server, controllers, scheduler.

``make kube`` builds the programs once.  Everything listens on loopback addresses and lives in
one folder; nodes are objects without kubelets unless somebody starts kubelets
(``testing/kube_nodes.py``).
"""

import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

import yaml

from interlane.testing.kube_api import KubeApi
from interlane.testing.waiting import until

RELEASE: Final = "1.20.2"
PROGRAMS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
ADMIN: Final = "admin"
MASTERS: Final = "system:masters"
SHM: Final = Path("/dev/shm")
SERVICES: Final = f"10.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}.0/24"
"""Addresses of services, which differ between clusters that run on this machine at once."""
SERVER_ADDRESS: Final = SERVICES.replace(".0/24", ".1")
"""Where pods look for the API server; somebody must listen there (``testing/kube_nodes``)."""
BEGIN_S: Final = 600.0
"""Seconds in which a control plane begins, however busy the machine is."""
END_S: Final = 20.0
"""Seconds that a program gets to end."""


class ProgramsMissing(Exception):
    """What a cluster is made of is not here."""


@dataclass(frozen=True, slots=True)
class KubePrograms:
    """Where the programs are."""

    folder: Path
    etcd: Path

    def path(self, name: str) -> Path:
        """Return one of them."""
        return self.folder / name


def _dies_with_us() -> tuple[str, ...]:
    """Return what a command begins with that ends when whoever started it is killed."""
    found = shutil.which("setpriv")
    return () if found is None else (found, "--pdeathsig", "KILL")


def find_programs() -> KubePrograms:
    """Return the programs that ``make kube`` has built, or raise what is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("INTERLANE_KUBE") or cache / "interlane" / f"kube-{RELEASE}")
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    etcd = shutil.which("etcd")
    if missing or etcd is None:
        what = ", ".join([*missing, *(() if etcd else ("etcd",))])
        raise ProgramsMissing(f"There is no {what} in {folder}; 'make kube' builds all.")
    return KubePrograms(folder, Path(etcd))


def free_port() -> int:
    """Return a port that nobody has at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass
class KubeProgram:
    """A program that runs, can be killed and started again."""

    name: str
    command: Sequence[str]
    log: Path
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it; what it says is appended to its log."""
        out: IO[bytes]
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                (*_dies_with_us(), *self.command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it without a word, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> None:
        """Let it end by itself, or make it."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def must_run(self) -> None:
        """Raise what it said last if it has ended."""
        if self._process is None or self._process.poll() is not None:
            said = self.log.read_text(errors="replace").splitlines()[-8:]
            raise AssertionError(f"{self.name} has ended: " + "\n".join(said))

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid


@dataclass
class KubeCluster:
    """A control plane that runs; see ``kube_cluster``."""

    programs: KubePrograms
    folder: Path
    url: str
    tokens: dict[str, str]
    etcd: KubeProgram
    apiserver: KubeProgram
    controllers: KubeProgram
    others: list[KubeProgram] = field(default_factory=list)
    _apis: dict[str, KubeApi] = field(default_factory=dict)
    """One for each token, closed with the cluster: what is collected with others at some
    moment cannot be relied on to close its connections before they complain."""

    @property
    def ca(self) -> Path:
        """What signs the server's certificate."""
        return self.folder / "gen" / "apiserver.crt"

    def api(self, user: str = ADMIN) -> KubeApi:
        """Return a client that speaks as a user."""
        return self.api_of(self.tokens[user])

    def api_of(self, token: str) -> KubeApi:
        """Return a client that has a token."""
        if token not in self._apis:
            self._apis[token] = KubeApi(self.url, self.ca, token)
        return self._apis[token]

    def kubeconfig(self, user: str = ADMIN, server: str | None = None) -> Path:
        """Write the file by which a user's programs find the server."""
        path = self.folder / f"kubeconfig-{user.replace(':', '-')}"
        if server is not None:
            path = path.with_name(f"{path.name}-{server.rpartition(':')[2]}")
        path.write_text(yaml.safe_dump(_kubeconfig(self, user, server or self.url)))
        path.chmod(0o600)
        return path

    def wait_ready(self) -> None:
        """Wait until the API server answers."""
        context = ssl.create_default_context(cafile=str(self.ca)) if self.ca.exists() else None

        def is_ready() -> bool:
            nonlocal context
            self.apiserver.must_run()
            if context is None and self.ca.exists():
                context = ssl.create_default_context(cafile=str(self.ca))
            return context is not None and _answers(f"{self.url}/readyz", context, self.tokens)

        until(is_ready, "the API server's first answer", BEGIN_S)

    def restart_apiserver(self) -> None:
        """Kill the API server and start it again."""
        self.apiserver.kill()
        self.apiserver.start()
        self.wait_ready()

    @contextmanager
    def stalled_etcd(self) -> Iterator[None]:
        """Let etcd stand still for a while."""
        self.etcd.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.etcd.signal(signal.SIGCONT)

    def start_scheduler(self, **flags: object) -> KubeProgram:
        """Start the stock scheduler."""
        given = {
            "kubeconfig": self.kubeconfig(),
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
            "secure-port": free_port(),
            "port": 0,
            **{name.replace("_", "-"): value for name, value in flags.items()},
        }
        return self._start("kube-scheduler", given)

    def _start(self, name: str, flags: dict[str, object]) -> KubeProgram:
        made = _program(self.programs, self.folder, name, flags)
        made.start()
        self.others.append(made)
        return made

    def close(self) -> None:
        """End everything."""
        for api in self._apis.values():
            api.close()
        for program in (*self.others, self.controllers, self.apiserver, self.etcd):
            program.kill()  # nothing of it is kept


@contextmanager
def kube_cluster(
    *, users: Sequence[str] = (), lifecycle: bool = False, group: str = ""
) -> Iterator[KubeCluster]:
    """Run a control plane for as long as the context lasts.

    Args:
        users: names that get a token each, besides ``admin``; they may do nothing until a role
            is bound to them.
        lifecycle: whether nodes that give no sign of life are tainted, and their pods evicted;
            without it nodes need no heartbeats.
        group: a group that all users are in.
    """
    programs = find_programs()
    where = SHM if SHM.is_dir() else None
    with TemporaryDirectory(prefix="interlane-kube-", dir=where) as name:
        cluster = _made(programs, Path(name), users, group, lifecycle=lifecycle)
        try:
            _begin(cluster)
            yield cluster
        finally:
            cluster.close()


def _begin(cluster: KubeCluster) -> None:
    cluster.etcd.start()
    cluster.apiserver.start()
    cluster.wait_ready()
    cluster.kubeconfig()
    cluster.controllers.start()
    api = cluster.api()

    def has_account() -> bool:
        cluster.controllers.must_run()
        path = "/api/v1/namespaces/default/serviceaccounts"
        return any(one.get("secrets") for one in api.items(path))

    until(has_account, "the service account of namespace default", BEGIN_S)


def _made(
    programs: KubePrograms, folder: Path, users: Sequence[str], group: str, *, lifecycle: bool
) -> KubeCluster:
    tokens = {name: secrets.token_hex(16) for name in (ADMIN, *users)}
    _write_keys(folder)
    rows = [f'{token},{name},{name},"{group}"' for name, token in tokens.items()]
    rows[0] = f'{tokens[ADMIN]},{ADMIN},{ADMIN},"{MASTERS}"'
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
    (folder / "tokens.csv").chmod(0o600)
    etcd, port = f"http://127.0.0.1:{free_port()}", free_port()
    return KubeCluster(
        programs,
        folder,
        f"https://127.0.0.1:{port}",
        tokens,
        _etcd(programs, folder, etcd),
        _program(
            programs,
            folder,
            "kube-apiserver",
            _server_flags(folder, etcd, port, lifecycle=lifecycle),
        ),
        _program(
            programs,
            folder,
            "kube-controller-manager",
            _controller_flags(folder, lifecycle=lifecycle),
        ),
    )


def _program(
    programs: KubePrograms, folder: Path, name: str, flags: dict[str, object]
) -> KubeProgram:
    words = [f"--{key}={value}" for key, value in flags.items()]
    return KubeProgram(name, (str(programs.path(name)), *words), folder / f"{name}.log")


def _etcd(programs: KubePrograms, folder: Path, url: str) -> KubeProgram:
    words = (
        *("--data-dir", str(folder / "etcd"), "--unsafe-no-fsync"),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", "http://127.0.0.1:0"),
        # A loaded machine may keep it off its cores for seconds.
        *("--heartbeat-interval", "1000", "--election-timeout", "10000"),
    )
    return KubeProgram("etcd", (str(programs.etcd), *words), folder / "etcd.log")


def _server_flags(folder: Path, etcd: str, port: int, *, lifecycle: bool) -> dict[str, object]:
    return {
        "etcd-servers": etcd,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": folder / "gen",
        "service-account-key-file": folder / "sa.pub",
        "service-account-signing-key-file": folder / "sa.key",
        "service-account-issuer": "https://kubernetes.default.svc",
        "token-auth-file": folder / "tokens.csv",
        "authorization-mode": "Node,RBAC",
        "service-cluster-ip-range": SERVICES,
        "allow-privileged": "true",
        "max-requests-inflight": 1200,
        "max-mutating-requests-inflight": 800,
        "event-ttl": "1h",
        **({} if lifecycle else {"disable-admission-plugins": "TaintNodesByCondition"}),
    }


def _controller_flags(folder: Path, *, lifecycle: bool) -> dict[str, object]:
    return {
        "kubeconfig": folder / f"kubeconfig-{ADMIN}",
        "service-account-private-key-file": folder / "sa.key",
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        "secure-port": free_port(),
        "port": 0,
        "kube-api-qps": 300,
        "kube-api-burst": 600,
        "controllers": "*" if lifecycle else "*,-nodelifecycle",
        "root-ca-file": folder / "gen" / "apiserver.crt",
    }


def _write_keys(folder: Path) -> None:
    """Make the key by which service accounts sign."""
    for words in (
        ("genrsa", "-out", "sa.key", "2048"),
        ("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"),
    ):
        subprocess.run(("openssl", *words), cwd=folder, check=True, capture_output=True)


def _answers(url: str, context: ssl.SSLContext, tokens: dict[str, str]) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {tokens[ADMIN]}"})
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _kubeconfig(cluster: KubeCluster, user: str, server: str) -> dict[str, Any]:
    context = {"cluster": "test", "user": user}
    place = {"server": server, "certificate-authority": str(cluster.ca)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": place}],
        "users": [{"name": user, "user": {"token": cluster.tokens[user]}}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }


def main() -> None:
    """Run a control plane until interrupted, and say how to reach it."""
    with kube_cluster() as cluster:
        print(f"export KUBECONFIG={cluster.kubeconfig()}", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print("The cluster ends.")


if __name__ == "__main__":
    main()
