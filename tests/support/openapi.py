"""The operations of the API, by which tests are parametrized, and its OpenAPI document.

Every worker of a test run needs the list, but only one needs the document, which takes two seconds to make.
"""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import Any, NamedTuple

from kingdom.web.app import openapi_document
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "api.md"
_ROW = re.compile(r"^\| `([A-Z]+) (/[^`]*)` \| `(\w+)` \|", re.MULTILINE)


class Operation(NamedTuple):
    """A row of the page that is written from the document; a test compares the two."""

    method: str
    path: str
    name: str


def operations() -> list[Operation]:
    return [Operation(method.lower(), path, name) for method, path, name in _ROW.findall(PAGE.read_text("utf-8"))]


@cache
def document() -> dict[str, Any]:
    return asyncio.run(openapi_document())
