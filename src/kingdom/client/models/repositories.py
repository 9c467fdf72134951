"""The types of repositories. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import TypedDict


class Git(TypedDict):
    """A repository."""

    id: str
    name: str
    url: str
    usedBy: list[str]


class GitBody(TypedDict):
    """A repository to register."""

    name: str
    url: str
