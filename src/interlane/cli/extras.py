"""Which extra of the package brings what a command may find missing."""

from types import MappingProxyType
from typing import Final

EXTRA_OF: Final = MappingProxyType(
    {
        "fastapi": "server",
        "httptools": "server",
        "httpx": "server",
        "markupsafe": "server",
        "nicegui": "server",
        "sqlalchemy": "server",
        "starlette": "server",
        "uvicorn": "server",
        "uvloop": "server",
        "websockets": "server",
        "prometheus_client": "share",
        "torch": "share",
        "sklearn": "ml",
        "highspy": "mig",
        "plotly": "report",
        "pynvml": "gpu",
        "psycopg": "postgres",
        "aiohttp": "kubernetes",
        "google": "kubernetes",
        "grpc": "kubernetes",
        "orjson": "kubernetes",
    }
)
"""Module -> the extra that brings it."""


def missing(error: ModuleNotFoundError) -> str | None:
    """Return what to install, in a sentence; None if the module is not of an extra."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None:
        return None
    return (
        f"This needs {module}, which is not installed; install it with "
        f"\"pip install 'interlane[{extra}]'\"."
    )
