"""Errors as problem documents (RFC 9457): what went wrong, in one sentence."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from interlane.live.auth import Denied, LastAdmin, NameTaken, NewToken, NoSuchToken
from interlane.live.driver import (
    AlreadyEnded,
    KeyReused,
    NoSuchJob,
    NoSuchMachine,
    NotReady,
    NotUnknown,
    NotWaiting,
    VersionDiffers,
)
from interlane.live.files.fields import sentence
from interlane.live.files.function import FunctionSpec
from interlane.live.files.job import JobSpec
from interlane.live.functions.gateway import NoSuchFunction, NotYours, TooManyFunctions
from interlane.live.http.presence import CallerGone
from interlane.live.questions.desk import TooManyQuestions, TooManyRequests
from interlane.live.store.store import StoreFailed
from interlane.model import InterlaneError, InvalidInput
from interlane.sweep.definition import NoSuchSweep

MEDIA_TYPE: Final = "application/problem+json"

_STATUS: Final[Mapping[type[InterlaneError], HTTPStatus]] = MappingProxyType(
    {
        Denied: HTTPStatus.FORBIDDEN,
        NameTaken: HTTPStatus.CONFLICT,
        NoSuchToken: HTTPStatus.NOT_FOUND,
        NoSuchJob: HTTPStatus.NOT_FOUND,
        NoSuchMachine: HTTPStatus.NOT_FOUND,
        NoSuchFunction: HTTPStatus.NOT_FOUND,
        NoSuchSweep: HTTPStatus.NOT_FOUND,
        NotYours: HTTPStatus.FORBIDDEN,
        TooManyFunctions: HTTPStatus.CONFLICT,
        AlreadyEnded: HTTPStatus.CONFLICT,
        NotUnknown: HTTPStatus.CONFLICT,
        NotWaiting: HTTPStatus.CONFLICT,
        LastAdmin: HTTPStatus.CONFLICT,
        VersionDiffers: HTTPStatus.PRECONDITION_FAILED,
        KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
        NotReady: HTTPStatus.SERVICE_UNAVAILABLE,
        StoreFailed: HTTPStatus.SERVICE_UNAVAILABLE,
        TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
        TooManyQuestions: HTTPStatus.SERVICE_UNAVAILABLE,
        InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)

_WRITTEN: Final[Mapping[str, tuple[type[BaseModel], str]]] = MappingProxyType(
    {
        "/functions": (FunctionSpec, "function"),
        "/tokens": (NewToken, "token"),
        "/": (JobSpec, "job"),
    }
)
"""What users write, by a part of the path that they send it to."""


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
    app.add_exception_handler(CallerGone, _gone)


def _interlane(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, InterlaneError)
    retry_s = getattr(error, "retry_s", None)
    headers = None if retry_s is None else {"Retry-After": str(retry_s)}
    return problem(status_of(error), str(error), headers)


def _gone(_: Request, __: Exception) -> Response:
    """Return what nobody will see."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


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
    errors = [{**one, "loc": one["loc"][1:]} for one in error.errors()]  # not where it was sent
    model, what = next(
        written for part, written in _WRITTEN.items() if part in request.url.path
    )
    said = sentence(errors, model, what)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, said)
