"""From version 2 to 3: a database has an id, and says which server writes and that it lives."""

from secrets import token_hex

from sqlalchemy import Connection, text

from interlane.live.store.tables import ID_BYTES


def to_version_3(connection: Connection) -> None:
    """Bring tables of version 2 to version 3."""
    for column in ("identity VARCHAR(32)", "server TEXT"):
        connection.exec_driver_sql(f"ALTER TABLE life ADD COLUMN {column} DEFAULT '' NOT NULL")
    connection.exec_driver_sql("ALTER TABLE life ADD COLUMN beat BIGINT DEFAULT 0 NOT NULL")
    connection.execute(text("UPDATE life SET identity = :id"), {"id": token_hex(ID_BYTES)})
