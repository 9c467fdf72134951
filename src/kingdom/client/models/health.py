"""The types of health. Written by scripts/client from docs/reference/openapi.json: change that."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from kingdom.client.models.shared import RoleState


class Alive(TypedDict):
    """The server answers."""

    status: NotRequired[Literal["alive"]]


class Health(TypedDict):
    """How the court is, and whether workflows are worked on from here."""

    level: str
    reason: str
    court: bool
    running: bool
    roles: list[RoleState]
    workflowEngine: bool


class Ready(TypedDict):
    """Everything the server needs answers."""

    status: NotRequired[Literal["ready"]]
    checked: list[str]


class Session(TypedDict):
    """Who asks, and what a page needs to begin."""

    csrfToken: str
    identity: Literal["bearer", "session"]
    user: str
    version: str
    root: str
    court: bool
    locale: str
