"""The tokens of people, as the API and the dashboard show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from kingdom.web.envelope import ApiModel
from kingdom.web.security.credentials import login_link
from kingdom.web.security.roles import Role

if TYPE_CHECKING:
    from kingdom.web.context import WebContext


class TokenInfo(ApiModel):
    """The token of a person, without its value."""

    name: str = Field(examples=["ann"])
    role: Role = Field(examples=["answer"])
    created_at: str = Field(examples=["2026-02-07T12:00:00.000Z"])
    last_used_at: str | None = Field(description="To the minute; null: never.", examples=["2026-02-07T12:05:00.000Z"])


def list_tokens(context: WebContext) -> list[TokenInfo]:
    """Return the tokens of people, by name."""
    return [
        TokenInfo(name=one.name, role=one.role, created_at=one.created_at, last_used_at=one.last_used_at)
        for one in context.tokens.list()
    ]


def add_token(context: WebContext, name: str, role: Role) -> tuple[str, str]:
    """Create a token. Returns its value and the path that logs a browser in."""
    value = context.tokens.add(name, role)
    return value, login_link("", value)


def change_role(context: WebContext, name: str, role: Role) -> None:
    """Give a token another role. The caller ends its connections, in the event loop."""
    context.tokens.change_role(name, role)


def revoke_token(context: WebContext, name: str) -> None:
    """Revoke a token. The caller ends its connections, in the event loop."""
    context.tokens.remove(name)
