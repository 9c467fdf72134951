"""Who may come in: host, origin, token, pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kingdom.web.context import WebContext


def guard(app: FastAPI, context: WebContext) -> None:
    """Put the guard before an application: nothing is reached without it."""
