"""A real server: encrypted, short of descriptors, with an audit log."""

import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from interlane.live.audit import AuditLog
from interlane.live.functions.gateway import FunctionSettings
from interlane.live.up import TlsFiles, UpSettings, _emptied, _must_be_safe
from interlane.model import InvalidInput
from interlane.testing.waiting import PATIENCE_S

DESCRIPTORS = 256
HALF_OPEN = 1_100
COMMAND = (sys.executable, "-m", "interlane")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    folder = tmp_path_factory.mktemp("tls")
    made = TlsFiles(folder / "cert.pem", folder / "key.pem")
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    name = ("-subj", "/CN=interlane", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    files = ("-keyout", str(made.key), "-out", str(made.cert))
    subprocess.run((*words.split(), *name, *files), check=True, capture_output=True)
    return made


@dataclass(frozen=True)
class Server:
    state: Path
    url: str
    tls: TlsFiles

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.tls.cert)

    def run(self, *words: str) -> str:
        """Run a command as an admin who trusts the certificate."""
        own = {"INTERLANE_STATE": str(self.state), "INTERLANE_CA": str(self.tls.cert)}
        told = subprocess.run(
            (*COMMAND, *words),
            env=os.environ | own,
            check=True,
            capture_output=True,
            text=True,
        )
        return told.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tls: TlsFiles) -> Iterator[Server]:
    state = tmp_path_factory.mktemp("state")
    (state / "scratch" / "left").mkdir(parents=True)
    words = ["up", "--port", "0", "--state", str(state), "--devices", "cpu:1", "--no-pages"]
    words += ["--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
    words += ["--bound", "header_s=600"]
    limited = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    with subprocess.Popen(
        (*limited, *COMMAND, *words), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            assert any(line.startswith("Serving at https://") for line in process.stderr)
            yield Server(state, json.loads((state / "server.json").read_text())["url"], tls)
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()


def test_the_server_speaks_tls_and_nothing_else(server: Server) -> None:
    trusting = httpx.get(f"{server.url}/healthz", verify=server.trust)
    assert trusting.text == "ok\n"
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
        httpx.get(f"{server.url}/healthz")
    with pytest.raises(httpx.TransportError):
        httpx.get(server.url.replace("https", "http") + "/healthz")
    words = (*COMMAND, "ps", "-o", "json", "--state", str(server.state))
    wary = subprocess.run(words, capture_output=True, text=True)
    assert "CERTIFICATE" in wary.stderr
    told = subprocess.run((*words, "--ca", str(server.tls.cert)), capture_output=True)
    assert json.loads(told.stdout)["jobs"] == []


def test_half_open_connections_leave_others_served_and_jobs_started(server: Server) -> None:
    """They never begin to encrypt; half a header is tried without TLS in test_bounds."""
    parts = urlsplit(server.url)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4_096)), hard))
    with ExitStack() as held:
        for _ in range(HALF_OPEN):
            with suppress(ConnectionError):
                made = socket.create_connection((parts.hostname, parts.port), PATIENCE_S)
                held.enter_context(made)
        job = server.run("run", "--gpus", "1", "--", "echo", "served")
        ready = httpx.get(f"{server.url}/readyz", verify=server.trust, timeout=60)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "served" in job
    assert ready.text == "ready\n"


def test_what_admins_do_and_who_is_denied_is_on_record(server: Server) -> None:
    made = json.loads(server.run("token", "create", "eve", "--role", "viewer", "-o", "json"))
    rotated = json.loads(
        server.run("token", "rotate", made["id"], "--expires", "30d", "-o", "json")
    )
    with httpx.Client(base_url=f"{server.url}/api/v1", verify=server.trust) as client:
        for token in (made["token"], rotated["token"]):
            head = {"Authorization": f"Bearer {token}"}
            client.post("/jobs", json={"name": "a", "run": "true"}, headers=head)
        for _ in range(100):
            client.get("/summary")
        assert client.get("/audit", headers=head).status_code == 403
    server.run("token", "revoke", rotated["id"])

    found = json.loads(server.run("audit", "-o", "json"))["entries"]
    told = [(one["what"], one["actor"], one.get("status")) for one in found]
    assert ("token made", "admin", None) in told
    assert ("token rotated", "admin", None) in told
    assert told.count(("denied", "eve", 403)) == 2
    assert 10 <= told.count(("denied", None, 401)) <= 60
    assert told[-1] == ("token revoked", "admin", None)
    assert sum(one.get("unwritten_denials", 0) for one in found) >= 40
    assert {one["address"] for one in found} == {"127.0.0.1"}
    assert made["token"].split("_")[2] not in (server.state / "audit.log").read_text()
    assert (server.state / "audit.log").stat().st_mode & 0o777 == 0o600
    assert "token revoked" in server.run("audit", "--since", "1h")


def test_the_admins_own_token_is_rotated_where_it_lies(server: Server) -> None:
    file = server.state / "token"
    old = file.read_text()
    server.run("token", "rotate", old.split("_")[1])
    assert file.read_text() != old
    assert file.stat().st_mode & 0o777 == 0o600
    assert "admin" in server.run("token", "list")


def test_what_servers_before_left_is_gone(server: Server) -> None:
    assert list((server.state / "scratch").iterdir()) == []


def test_nothing_but_loopback_is_served_in_the_open(tmp_path: Path, tls: TlsFiles) -> None:
    def settings(host: str, **more: object) -> UpSettings:
        return UpSettings(tmp_path, host, 0, FunctionSettings(), **more)  # type: ignore[arg-type]

    for host in ("127.0.0.1", "::1", "localhost", "127.1.2.3"):
        _must_be_safe(settings(host))
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org", ""):
        with pytest.raises(InvalidInput, match="in the open"):
            _must_be_safe(settings(host))
        _must_be_safe(settings(host, behind_proxy=True))
        _must_be_safe(settings(host, tls=tls))
    for wrong in (TlsFiles(tls.key, tls.cert), TlsFiles(tls.cert, tmp_path / "none")):
        with pytest.raises(InvalidInput, match="no certificate and its key"):
            _must_be_safe(settings("::", tls=wrong))


def test_the_audit_log_is_kept_in_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlane.live.audit.FILE_BYTES", 1_000)
    audit = AuditLog(tmp_path, lambda: 7.0)
    for number in range(200):
        audit.note("tried", "ann", "here", number=number)
    with (tmp_path / "audit.log").open("a") as torn:
        torn.write('{"at_s": 7, "wh')

    found = [one["number"] for one in AuditLog(tmp_path, lambda: 7.0).since(0.0, 1_000)]
    assert found == list(range(found[0], 200))
    assert len(found) < 100
    assert len(list(tmp_path.iterdir())) <= 5
    assert AuditLog(tmp_path, lambda: 7.0).since(7.5, 10) == []


def test_a_scratch_folder_begins_empty(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    (folder / "left").mkdir(parents=True)

    assert _emptied(folder) == folder
    assert list(folder.iterdir()) == []
