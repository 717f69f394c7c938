"""Tokens: made, listed, rotated, revoked."""

from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from interlane.live.auth import NewToken, role_of
from interlane.live.http.access import PREFIX, PROBLEMS, Admin, also
from interlane.live.http.service import Address, The
from interlane.live.store.rows import TokenRow
from interlane.model import amounts

TokenPath = Annotated[str, Field(max_length=32)]

routes = APIRouter(prefix=f"{PREFIX}/tokens", responses=PROBLEMS, tags=["tokens"])


@routes.post("", status_code=HTTPStatus.CREATED)
def make_token(wanted: NewToken, caller: Admin, the: The, address: Address) -> Response:
    """Make a token; it is shown this once."""
    expires_s = _seconds("expires", wanted.expires)
    made = the.tokens.make(
        wanted.name,
        role_of(wanted.role),
        expires_s=expires_s,
        same_account=wanted.same_account,
    )
    the.note("token made", caller, address, **_about(made[1]))
    return _shown_once(*made)


@routes.post("/{token_id}/rotate", status_code=HTTPStatus.CREATED, responses=also(404))
def rotate_token(
    token_id: TokenPath,
    caller: Admin,
    the: The,
    address: Address,
    grace: Annotated[
        str | None, Query(max_length=32, description="So long the old one counts yet.")
    ] = None,
    expires: Annotated[
        str | None, Query(max_length=32, description="After so long the new one ends.")
    ] = None,
) -> Response:
    """Make another token in the place of one; it is shown this once."""
    grace_s = _seconds("grace", grace) or 0.0
    expires_s = _seconds("expires", expires)
    made = the.tokens.rotate(token_id, grace_s=grace_s, expires_s=expires_s)
    the.note("token rotated", caller, address, old=token_id, **_about(made[1]))
    return _shown_once(*made)


def _about(row: TokenRow) -> dict[str, str]:
    return {"token": row.id, "name": row.name, "role": row.role}


def _shown_once(token: str, row: TokenRow) -> Response:
    shown = {"id": row.id, "name": row.name, "role": row.role, "token": token}
    headers = {"Cache-Control": "no-store"}
    return JSONResponse({**shown, "expires_s": row.revoked_s}, HTTPStatus.CREATED, headers)


def _seconds(field: str, text: str | int | float | None) -> float | None:
    return None if text is None else amounts.seconds(field, text)


@routes.get("")
def list_tokens(caller: Admin, the: The) -> Response:
    """List tokens, without what would let anybody use them."""
    now_s = the.view.now_s()
    shown = [{**asdict(row), "valid": row.is_valid(now_s)} for row in the.tokens.all()]
    for row in shown:
        del row["digest"]
    return JSONResponse({"tokens": shown})


@routes.delete("/{token_id}", status_code=HTTPStatus.NO_CONTENT, responses=also(404, 409))
def revoke_token(token_id: TokenPath, caller: Admin, the: The, address: Address) -> Response:
    """Let a token count no longer."""
    if not the.tokens.revoke(token_id):
        raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no valid token {token_id!r}.")
    the.note("token revoked", caller, address, token=token_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)
