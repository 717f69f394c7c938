"""Where an API server is and who we are there: a kubeconfig file, or the pod that we run in."""

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from interlane.model import InvalidInput

INSIDE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_S: Final = 60.0
"""Seconds for which a token that was read from a file is used before it is read again."""
EARLY_S: Final = 60.0
"""Seconds before its end at which a credential is asked for again."""
EXEC_S: Final = 60.0


@dataclass
class Credential:
    """Who we are: a token that may change, from wherever it comes."""

    token: str | None = None
    file: Path | None = None
    command: Mapping[str, Any] | None = None
    """A program that prints a credential, as kubeconfig files name it."""
    until_s: float = field(default=0.0, repr=False)

    def headers(self) -> dict[str, str]:
        """Return what goes with each request; may read a file or run a program."""
        if self.file is None and self.command is None:
            return self._bearer()
        if time.time() >= self.until_s:
            if self.file is not None:
                self.token, self.until_s = self.file.read_text().strip(), time.time() + TOKEN_S
            elif self.command is not None:
                self.token, self.until_s = _printed(self.command)
        return self._bearer()

    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass(frozen=True, slots=True)
class ApiServer:
    """An API server and how to speak to it."""

    url: str
    tls: ssl.SSLContext | None
    credential: Credential
    namespace: str = "default"


def server_of(kubeconfig: Path | None = None, context: str | None = None) -> ApiServer:
    """Return the server of a kubeconfig file; of this pod if none is given and we are in one.

    Without a file, ``KUBECONFIG`` and then ``~/.kube/config`` are looked at, as kubectl does.
    """
    if kubeconfig is None and (INSIDE / "token").exists():
        return _inside(INSIDE)
    path = kubeconfig or _usual()
    try:
        said = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise InvalidInput(
            f"There is no {path}; name a kubeconfig file with --kubeconfig, or run in a pod."
        ) from None
    except (OSError, yaml.YAMLError) as error:
        raise InvalidInput(f"{path} cannot be read ({error}); it must be YAML.") from None
    try:
        return _read(said, context, path.parent)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(
            f"{path} is not a kubeconfig file that can be used ({error!r})."
        ) from None


def _usual() -> Path:
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(named) if named else Path.home() / ".kube" / "config"


def _inside(folder: Path) -> ApiServer:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    shown = f"[{host}]" if ":" in host else host
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    namespace = (folder / "namespace").read_text().strip()
    return ApiServer(
        f"https://{shown}:{port}", tls, Credential(file=folder / "token"), namespace
    )


def _read(said: Mapping[str, Any], context: str | None, beside: Path) -> ApiServer:
    chosen = _named(said["contexts"], context or said["current-context"])["context"]
    cluster = _named(said["clusters"], chosen["cluster"])["cluster"]
    user = _named(said.get("users") or [], chosen["user"]).get("user") or {}
    tls = _tls(cluster, user, beside) if cluster["server"].startswith("https") else None
    return ApiServer(
        cluster["server"].rstrip("/"),
        tls,
        _credential(user, beside),
        chosen.get("namespace", "default"),
    )


def _named(entries: list[Any], name: str) -> Mapping[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            found: Mapping[str, Any] = entry
            return found
    raise KeyError(name)


def _credential(user: Mapping[str, Any], beside: Path) -> Credential:
    if "tokenFile" in user:
        return Credential(file=beside / user["tokenFile"])
    if "exec" in user:
        return Credential(command=user["exec"])
    if "auth-provider" in user or "username" in user:
        raise ValueError("only tokens, certificates and exec are known")
    return Credential(user.get("token"))


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], beside: Path) -> ssl.SSLContext:
    data = cluster.get("certificate-authority-data")
    file = cluster.get("certificate-authority")
    made = ssl.create_default_context(
        cafile=str(beside / file) if file else None,
        cadata=base64.b64decode(data).decode() if data else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    _present(made, user, beside)
    return made


def _present(made: ssl.SSLContext, user: Mapping[str, Any], beside: Path) -> None:
    """Let us be known by a certificate, if there is one."""
    if "client-certificate" in user:
        made.load_cert_chain(beside / user["client-certificate"], beside / user["client-key"])
    elif "client-certificate-data" in user:
        # The library reads certificates from files only.
        with tempfile.TemporaryDirectory() as folder:
            cert, key = Path(folder, "cert"), Path(folder, "key")
            cert.write_bytes(base64.b64decode(user["client-certificate-data"]))
            key.touch(0o600)
            key.write_bytes(base64.b64decode(user["client-key-data"]))
            made.load_cert_chain(cert, key)


def _printed(command: Mapping[str, Any]) -> tuple[str, float]:
    """Run the program that prints a token; return it and until when it holds."""
    env = {**os.environ, **{one["name"]: one["value"] for one in command.get("env") or ()}}
    info = {"apiVersion": command["apiVersion"], "kind": "ExecCredential", "spec": {}}
    env["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    words = (command["command"], *(command.get("args") or ()))
    try:
        done = subprocess.run(
            words, env=env, capture_output=True, check=True, timeout=EXEC_S, text=True
        )
        status = json.loads(done.stdout)["status"]
        token, ends = status["token"], status.get("expirationTimestamp")
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"{command['command']}, which the kubeconfig file names, gave no token ({error})."
        ) from None
    ends_s = time.time() + TOKEN_S if ends is None else datetime.fromisoformat(ends).timestamp()
    return token, ends_s - (EARLY_S if ends is not None else 0.0)
