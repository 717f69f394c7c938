"""Errors as problem documents (RFC 9457): what went wrong, in one sentence."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from interlane.model import InterlaneError, InvalidInput
from interlane.server.auth import Denied
from interlane.server.driver import (
    AlreadyEnded,
    KeyReused,
    NoSuchJob,
    NotReady,
    VersionDiffers,
)
from interlane.server.functions.gateway import NoSuchFunction, NotYours
from interlane.server.spec import sentence
from interlane.server.store import StoreFailed

MEDIA_TYPE: Final = "application/problem+json"

_STATUS: Final[Mapping[type[InterlaneError], HTTPStatus]] = MappingProxyType(
    {
        Denied: HTTPStatus.FORBIDDEN,
        NoSuchJob: HTTPStatus.NOT_FOUND,
        NoSuchFunction: HTTPStatus.NOT_FOUND,
        NotYours: HTTPStatus.FORBIDDEN,
        AlreadyEnded: HTTPStatus.CONFLICT,
        VersionDiffers: HTTPStatus.PRECONDITION_FAILED,
        KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
        NotReady: HTTPStatus.SERVICE_UNAVAILABLE,
        StoreFailed: HTTPStatus.SERVICE_UNAVAILABLE,
        InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an answer that says what went wrong."""
    known = HTTPStatus(status)
    body: dict[str, Any] = {"title": known.phrase, "status": status, "detail": detail}
    return JSONResponse(body, status, dict(headers or {}), MEDIA_TYPE)


def answer_with_problems(app: FastAPI) -> None:
    """Let every error of an application be answered with a problem document."""
    app.add_exception_handler(InterlaneError, _interlane)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _validation)


def _interlane(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, InterlaneError)
    return problem(status_of(error), str(error))


def status_of(error: InterlaneError) -> HTTPStatus:
    """Return the status that an error is answered with."""
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), error.headers)


def _validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    at = [part for part in first["loc"] if part not in ("body", "query", "path", "header")]
    what = "function" if "/functions" in request.url.path else "job"
    said = sentence({**first, "loc": at}, what)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, said)
