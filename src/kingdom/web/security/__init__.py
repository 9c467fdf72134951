"""Access control: host, origin, token, rate limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.web.security.credentials import (
    CSRF_HEADER,
    cookie_name,
    cookie_value,
    csrf_token,
    login_link,
    obtain_token,
    read_token,
    renew_token,
)
from kingdom.web.security.guard import AUTH_SCOPE_KEY, PERSON_SCOPE_KEY, RequestGuard
from kingdom.web.security.headers import nonce

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from kingdom.web.context import WebContext

__all__ = [
    "AUTH_SCOPE_KEY",
    "CSRF_HEADER",
    "PERSON_SCOPE_KEY",
    "add_guard",
    "cookie_name",
    "cookie_value",
    "csrf_token",
    "login_link",
    "nonce",
    "obtain_token",
    "read_token",
    "renew_token",
]


def add_guard(app: FastAPI, context: WebContext) -> None:
    """Put the guard in front of an application.

    It wraps the whole middleware stack. Middleware added by ``add_middleware`` is inside Starlette's error handler,
    whose responses need the security headers as well.
    """
    build = app.build_middleware_stack

    def guarded() -> ASGIApp:
        return RequestGuard(build(), context)

    app.build_middleware_stack = guarded  # type: ignore[method-assign]
