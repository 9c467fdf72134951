"""The dashboard: pages for people, in Python with NiceGUI."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kingdom.web.context import WebContext


def mount(app: FastAPI, context: WebContext) -> None:
    """Put the pages into an application."""
