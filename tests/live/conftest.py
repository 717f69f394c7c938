import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A private PostgreSQL on a socket of its own; yields its address."""
    if not POSTGRES:
        pytest.fail("PostgreSQL is not installed; 'make test' installs it.")
    # Not below pytest's own folder, which nobody else may enter.
    with TemporaryDirectory(prefix="interlane-postgres-") as name:
        yield from _served(Path(name))


def _served(folder: Path) -> Iterator[str]:
    data = folder / "data"
    data.mkdir()
    user = _as_postgres(data, folder)

    def run(*words: object) -> None:
        command = [*user, *map(str, words)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    run(POSTGRES[-1] / "initdb", "-D", data, "-A", "trust", "-U", "il", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
    run(POSTGRES[-1] / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
    try:
        yield f"postgresql://il@/postgres?host={folder}"
    finally:
        run(POSTGRES[-1] / "pg_ctl", "-D", data, "-m", "immediate", "stop")


def _as_postgres(*folders: Path) -> tuple[str, ...]:
    """Return how to run what refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    for folder in folders:
        shutil.chown(folder, "postgres", "postgres")
    return ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'state.db'}"
        return
    import psycopg

    server: str = request.getfixturevalue("postgres")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    yield server
