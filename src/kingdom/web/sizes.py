"""How large a request may be: whoever sends more is refused before it fills the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from kingdom.web.envelope import ApiError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST: Final = 4 * 1024 * 1024


class Sizes:
    """ASGI middleware: counts the bytes of requests under ``/api``."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST) -> None:
        self._app = app
        self._largest = largest
        self._refusal = f"a request may have at most {largest:,} bytes: send less at once"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, as far as it is not too large."""
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "0")
        if said.isdecimal() and int(said) > self._largest:
            await JSONResponse(ApiError(413, "SYS_TOO_LARGE", self._refusal).body(), 413)(scope, receive, send)
            return
        heard = 0

        async def counted() -> Message:
            nonlocal heard
            message = await receive()
            heard += len(message.get("body", b""))
            if heard > self._largest:
                raise HTTPException(413, self._refusal)
            return message

        await self._app(scope, counted, send)
