"""The tables of the store.

``life`` has one row: the version of the tables, the database's id, who may write, which server
that is and a number that it counts up while it lives, and where the log ends, which is known
even if all of it was moved elsewhere.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, String, Table, Text

VERSION: Final = 3
"""Version of the tables below."""

ID_BYTES: Final = 8
"""Random bytes of a database's id."""

_Serial = BigInteger().with_variant(Integer, "sqlite")  # the row id, only if spelled so
TABLES: Final = MetaData()

LOG: Final = Table(
    "log",
    TABLES,
    Column("seq", _Serial, primary_key=True, autoincrement=False),
    Column("at_s", Float(53), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("job_id", String(128), index=True),
    Column("what", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("cycle", _Serial, nullable=False),
)
JOBS: Final = Table(
    "jobs",
    TABLES,
    Column("serial", _Serial, primary_key=True, autoincrement=False),
    Column("id", String(128), nullable=False, unique=True),
    Column("state", String(16), nullable=False, index=True),
    Column("user", String(64), nullable=False),
    Column("ended_s", Float(53), index=True),
    Column("document", Text, nullable=False),
)
KEYS: Final = Table(
    "idempotency_keys",
    TABLES,
    Column("user", String(64), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("job_id", String(128), nullable=False),
)
TOKENS: Final = Table(
    "tokens",
    TABLES,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("role", String(16), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_s", Float(53), nullable=False),
    Column("revoked_s", Float(53)),
)
FUNCTIONS: Final = Table(
    "functions",
    TABLES,
    Column("name", String(64), primary_key=True),
    Column("user", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("deployed_s", Float(53), nullable=False),
    Column("spec", Text, nullable=False),
)
DRAINS: Final = Table(
    "drains",
    TABLES,
    Column("machine_id", String(255), primary_key=True),
    Column("by", String(64), nullable=False),
    Column("at_s", Float(53), nullable=False),
)
EPOCH: Final = Table(
    "life",
    TABLES,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, nullable=False),
    Column("seq", _Serial, nullable=False),
    Column("at_s", Float(53), nullable=False),
    Column("serial", _Serial, nullable=False),
    Column("identity", String(32), nullable=False),
    Column("server", Text, nullable=False),
    Column("beat", _Serial, nullable=False),
)
