"""What holds for all requests under ``/api``: how large they may be, that a POST is done once, tags of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.web import openapi
from kingdom.web.etag import ETags
from kingdom.web.idempotency import Answers, Idempotency
from kingdom.web.record import FOLDER
from kingdom.web.sizes import Sizes

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kingdom.web.context import WebContext


def install(app: FastAPI, context: WebContext) -> None:
    """Have an application keep these rules, and its OpenAPI document tell of them."""
    answers = Answers(context.root / FOLDER / "idempotency.db", context.clock)
    app.add_middleware(ETags)
    app.add_middleware(Idempotency, answers=answers)
    app.add_middleware(Sizes)  # the last one added is the first one met
    openapi.describe(app)
