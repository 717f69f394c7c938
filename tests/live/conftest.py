from collections.abc import Iterator
from pathlib import Path

import pytest

from interlane.testing.postgres import POSTGRES, postgres_served


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A private PostgreSQL on a socket of its own; yields its address."""
    if not POSTGRES:
        pytest.fail("PostgreSQL is not installed; 'make test' installs it.")
    with postgres_served() as url:
        yield url


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
