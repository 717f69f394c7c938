"""How a database is reached, and what is said when it fails."""

import sqlite3
from typing import Any, Final

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from interlane.model import InvalidInput

BUSY_S: Final = 10
"""Seconds for which a locked SQLite database is waited for."""

_MAY_WRITE: Final = "see that its folder is there and that this user may write to it"
_MAKE_ROOM: Final = "make room on its disk"
_RESTORE: Final = "restore it from a copy, or begin anew with another --state"
_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: f"another program has held it for {BUSY_S} s; end that program",
    sqlite3.SQLITE_FULL: _MAKE_ROOM,
    sqlite3.SQLITE_IOERR: _MAKE_ROOM,
    sqlite3.SQLITE_CANTOPEN: _MAY_WRITE,
    sqlite3.SQLITE_READONLY: _MAY_WRITE,
    sqlite3.SQLITE_CORRUPT: _RESTORE,
    sqlite3.SQLITE_NOTADB: _RESTORE,
}
"""What helps, by what SQLite says."""


def safe_url(url: str) -> str:
    """Return the address of a database without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "that it was given"


def engine_of(url: str) -> Engine:
    """Return what connects to the database of an address."""
    try:
        if url.startswith("postgresql://"):
            url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError):
        raise InvalidInput(
            "The database address cannot be understood; it must read like "
            "sqlite:////var/lib/interlane/state.db or postgresql://user@host/name."
        ) from None
    except ModuleNotFoundError as error:
        if not url.startswith("postgresql"):
            kind = url.partition(":")[0].partition("+")[0]
            raise InvalidInput(
                f"Databases of {kind} are not supported; use sqlite:/// or postgresql://."
            ) from None
        raise InvalidInput(
            f"{error.name} is not installed; install interlane[postgres] to use PostgreSQL."
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    elif engine.dialect.name != "postgresql":
        raise InvalidInput(
            f"Databases of {engine.dialect.name} are not supported; use sqlite or postgresql."
        )
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's own
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def failure(url: str, error: SQLAlchemyError) -> str:
    """Return in one sentence what the database said, and what helps."""
    said = error.orig if isinstance(error, DBAPIError) else error
    cause = " ".join(str(said).split()) or type(error).__name__
    code = getattr(said, "sqlite_errorcode", 0) & 0xFF  # the rest says more than is needed
    remedy = _REMEDIES.get(code, "see that it runs and can be reached")
    return f"The database {safe_url(url)} failed ({cause}); {remedy}."
