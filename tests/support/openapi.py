"""The OpenAPI document of the API, made once per process: tests are parametrized by its operations."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from kingdom.web.app import openapi_document


@cache
def document() -> dict[str, Any]:
    return asyncio.run(openapi_document())
