"""Opens a database: makes its tables, brings older ones up to date, and refuses all others.

A migration is one transaction, and a copy of what was there is made before it: of an SQLite
file beside it, of PostgreSQL's tables in a schema of their own.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import count
from secrets import token_hex
from typing import Final

from sqlalchemy import Connection, Engine, insert, inspect, select

from interlane.live.store.database import safe_url
from interlane.live.store.migrate_1 import to_version_2
from interlane.live.store.migrate_2 import to_version_3
from interlane.live.store.tables import EPOCH, ID_BYTES, TABLES, VERSION
from interlane.model import InvalidInput

MIGRATIONS: Final[Mapping[int, Callable[[Connection], None]]] = {
    1: to_version_2,
    2: to_version_3,
}
"""What brings tables of a version to the next."""

RESTORE: Final = "restore a copy, or begin anew with another --state"


def opened(engine: Engine, url: str, *, only_reads: bool) -> str | None:
    """Prepare a database; return a sentence if the operator should know of something."""
    with engine.begin() as connection:
        found = _version(connection, url)
    if found == VERSION:
        with engine.begin() as connection:
            _check_columns(connection, url)
        return None
    if found is not None and found > VERSION:
        raise InvalidInput(
            f"The database {safe_url(url)} was made by a newer interlane (tables of version "
            f"{found}, this one knows {VERSION}); use that one, or another --state."
        )
    if only_reads:
        raise InvalidInput(
            f"The database {safe_url(url)} has "
            f"{'no tables' if found is None else f'tables of version {found}'}; start its "
            "server once with 'interlane up', which makes them."
        )
    if found is None:
        with engine.begin() as connection:
            TABLES.create_all(connection)
            row = {"version": VERSION, "number": 0, "seq": 0, "at_s": 0.0, "serial": 0}
            who = {"identity": token_hex(ID_BYTES), "server": "", "beat": 0}
            connection.execute(insert(EPOCH), [row | who])
        return None
    return _migrated(engine, url, found)


def _version(connection: Connection, url: str) -> int | None:
    """Return the version of the tables; None if there are none."""
    there = set(inspect(connection).get_table_names())
    if EPOCH.name in there:
        version = connection.execute(select(EPOCH.c.version)).scalar()
        if isinstance(version, int) and version >= 1:
            return version
    if there.isdisjoint(TABLES.tables):
        return None
    raise InvalidInput(
        f"The database {safe_url(url)} has tables of no version that interlane ever made; "
        f"{RESTORE}."
    )


def _check_columns(connection: Connection, url: str) -> None:
    """Refuse tables that are not those of their version."""
    found = inspect(connection)
    there = set(found.get_table_names())
    for table in TABLES.tables.values():
        names = (
            {column["name"] for column in found.get_columns(table.name)}
            if (table.name in there)
            else set()
        )
        missing = [column.name for column in table.columns if column.name not in names]
        if missing:
            raise InvalidInput(
                f"The database {safe_url(url)} says that its tables are of version {VERSION}, "
                f"but {table.name} has no {missing[0]}; {RESTORE}."
            )


def _migrated(engine: Engine, url: str, found: int) -> str:
    """Bring older tables up to date, one version after another, or leave all as it is."""
    if engine.dialect.name == "sqlite":
        copy = _copied_file(str(engine.url.database), found)
    with _exclusive(engine) as connection:
        if engine.dialect.name != "sqlite":
            copy = _copied_schema(connection, found)
        for version in range(found, VERSION):
            MIGRATIONS[version](connection)
        connection.execute(EPOCH.update().values(version=VERSION))
    return (
        f"The database {safe_url(url)} had tables of version {found} and has those of version "
        f"{VERSION} now; a copy of what it was is in {copy}."
    )


@contextmanager
def _exclusive(engine: Engine) -> Iterator[Connection]:
    """Begin a transaction in which tables can be changed and cancelled, alone."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("LOCK TABLE life IN ACCESS EXCLUSIVE MODE")
        yield connection
        connection.commit()


def _copied_file(path: str, version: int) -> str:
    """Copy a database into a file beside it that is not there yet; return which."""
    for number in count(1):
        copy = f"{path}.version-{version}" + (f"-{number}" if number > 1 else "")
        if not _is_there(copy):
            break
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    return copy


def _is_there(path: str) -> bool:
    try:
        sqlite3.connect(f"file:{path}?mode=ro", uri=True).close()
    except sqlite3.OperationalError:
        return False
    return True


def _copied_schema(connection: Connection, version: int) -> str:
    """Copy the tables into a schema that is not there yet; return which."""
    names = set(inspect(connection).get_schema_names())
    wanted = (f"interlane_version_{version}_{number}" for number in count(1))
    schema = next(name for name in wanted if name not in names)
    connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    for table in inspect(connection).get_table_names():
        if table in TABLES.tables:
            connection.exec_driver_sql(f'CREATE TABLE {schema}."{table}" AS TABLE "{table}"')
    return f"schema {schema}"
