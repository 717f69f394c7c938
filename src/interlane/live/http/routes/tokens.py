"""Tokens: made, listed, revoked."""

from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, HTTPException
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from interlane.live.auth import NewToken, role_of
from interlane.live.http.access import PREFIX, PROBLEMS, Admin, also
from interlane.live.http.service import The

routes = APIRouter(prefix=f"{PREFIX}/tokens", responses=PROBLEMS, tags=["tokens"])


@routes.post("", status_code=HTTPStatus.CREATED)
def make_token(wanted: NewToken, caller: Admin, the: The) -> Response:
    """Make a token; it is shown this once."""
    token, row = the.tokens.make(wanted.name, role_of(wanted.role))
    shown = {"id": row.id, "name": row.name, "role": row.role, "token": token}
    return JSONResponse(shown, HTTPStatus.CREATED)


@routes.get("")
def list_tokens(caller: Admin, the: The) -> Response:
    """List tokens, without what would let anybody use them."""
    shown = [asdict(row) for row in the.tokens.all()]
    for row in shown:
        del row["digest"]
    return JSONResponse({"tokens": shown})


@routes.delete("/{token_id}", status_code=HTTPStatus.NO_CONTENT, responses=also(404, 409))
def revoke_token(
    token_id: Annotated[str, Field(max_length=32)], caller: Admin, the: The
) -> Response:
    """Let a token count no longer."""
    if not the.tokens.revoke(token_id):
        raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no valid token {token_id!r}.")
    return Response(status_code=HTTPStatus.NO_CONTENT)
