"""Who may call which route, and what every route may answer."""

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from interlane.live.auth import Caller, Role
from interlane.live.http.problems import MEDIA_TYPE

PREFIX: Final = "/api/v1"
BODY_BYTES_MAX: Final = 1 << 20
PAGE_MAX: Final = 500
"""Things that one answer lists."""

SERIAL_MAX: Final = 1 << 62
CALLER: Final = "interlane.caller"
"""Where a request's scope says who calls."""

NO_TOKEN: Final = (
    HTTPStatus.UNAUTHORIZED,
    "This needs a token that is valid; send it as 'Authorization: Bearer TOKEN'.",
    {"WWW-Authenticate": "Bearer"},
)


class RequiresRole:
    """Lets callers pass whose token has at least this role."""

    def __init__(self, role: Role) -> None:
        self.role = role

    # A coroutine that waits for nothing: a function would go to a thread and back.
    async def __call__(
        self,
        request: Request,
        shown: Annotated[
            HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))
        ],
    ) -> Caller:
        """Return who calls, as the gate has found out, or refuse."""
        caller: Caller | None = request.scope.get(CALLER)
        if caller is None:
            raise HTTPException(*NO_TOKEN)
        caller.insist(self.role)
        return caller


Viewer = Annotated[Caller, Depends(RequiresRole(Role.VIEWER))]
User = Annotated[Caller, Depends(RequiresRole(Role.USER))]
Admin = Annotated[Caller, Depends(RequiresRole(Role.ADMIN))]

_PROBLEM: Final[dict[str, Any]] = {"content": {MEDIA_TYPE: {"schema": {"type": "object"}}}}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    401: {"description": "No valid token.", **_PROBLEM},
    403: {"description": "The token's role does not suffice.", **_PROBLEM},
    422: {"description": "Something in the request breaks its rule.", **_PROBLEM},
    429: {"description": "The caller asks too often, or too much at a time.", **_PROBLEM},
    503: {"description": "The server cannot do this now; try again.", **_PROBLEM},
}


def also(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of further problems that a route may answer with."""
    return {
        status: {"description": HTTPStatus(status).phrase, **_PROBLEM} for status in statuses
    }
