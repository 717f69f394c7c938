"""A private PostgreSQL on a socket of its own, for as long as it is needed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

PATIENCE_S = 300.0
"""Seconds for which a copy may wait for whoever has tables locked."""

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
"""Where its programs lie, the newest last."""


@contextmanager
def postgres_served() -> Iterator[str]:
    """Serve an empty database; yields its address."""
    # Not below a folder of ours, which nobody else may enter.
    with TemporaryDirectory(prefix="interlane-postgres-") as name:
        folder = Path(name)
        data = folder / "data"
        data.mkdir()
        user = _as_postgres(data, folder)

        def run(*words: object) -> None:
            command = [*user, *map(str, words)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        control = (POSTGRES[-1] / "pg_ctl", "-D", data)
        run(POSTGRES[-1] / "initdb", "-D", data, "-A", "trust", "-U", "il", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
        run(*control, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://il@/postgres?host={folder}"
        finally:
            run(*control, "-m", "immediate", "stop")


def dump(url: str, to: Path) -> None:
    """Copy a database into a file, as operators do."""
    command = (POSTGRES[-1] / "pg_dump", "-Fc", "-f", to, "-d", url)
    subprocess.run(command, check=True, timeout=PATIENCE_S)


def put_back(url: str, copy: Path) -> None:
    """Put a copy in the place of a database that nobody uses."""
    words = ("--clean", "--if-exists", "-d", url, copy)
    subprocess.run((POSTGRES[-1] / "pg_restore", *words), check=True, timeout=PATIENCE_S)


def _as_postgres(*folders: Path) -> tuple[str, ...]:
    """Return how to run what refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    for folder in folders:
        shutil.chown(folder, "postgres", "postgres")
    return ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
