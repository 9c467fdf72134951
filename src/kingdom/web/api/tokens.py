"""`/api/tokens`."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Path
from pydantic import Field, StringConstraints

from kingdom.web.acting import acts_on
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Ok, Page, ok, page
from kingdom.web.security.roles import Role
from kingdom.web.security.tokens import NAME_PATTERN
from kingdom.web.views.tokens import TokenInfo, add_token, change_role, list_tokens, revoke_token

router = APIRouter(prefix="/api/tokens", tags=["people"])
TokenName: TypeAlias = Annotated[str, Path(pattern=NAME_PATTERN, max_length=60, examples=["ann"])]


class TokenBody(ApiModel):
    """A person to give a token."""

    name: Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=60)] = Field(examples=["ann"])
    role: Role = Field(examples=["answer"])


class NewToken(ApiModel):
    """A token that was created. Its value is shown this once."""

    name: str = Field(examples=["ann"])
    role: Role = Field(examples=["answer"])
    token: str = Field(description="Send it as `Authorization: Bearer TOKEN`.", examples=["pV3…"])
    path: str = Field(
        description="Opened in a browser, it logs the person in. It contains the token.", examples=["/login?token=pV3…"]
    )


class RoleBody(ApiModel):
    """Another role for a person."""

    role: Role = Field(examples=["operate"])


class ChangedRole(ApiModel):
    """The role of a token after a change."""

    name: str = Field(examples=["ann"])
    role: Role = Field(examples=["operate"])


class RevokedToken(ApiModel):
    """A token that was revoked."""

    name: str = Field(examples=["ann"])


@router.get("", operation_id="listTokens", summary="List the tokens of people")
async def get_tokens(context: Context) -> Ok[Page[TokenInfo]]:
    """Who has a token, with which role, and when it was last used (to the minute). All on one page."""
    return page(await asyncio.to_thread(list_tokens, context))


@router.post("", operation_id="createToken", summary="Give a person a token", status_code=201)
async def post_token(context: Context, body: TokenBody) -> Ok[NewToken]:
    """Create a token with a name and a role. 409: the name has one.

    The response contains the token, so it is not stored: a repeated `Idempotency-Key` does not return it again.
    """
    value, path = await asyncio.to_thread(add_token, context, body.name, body.role)
    acts_on(body.name)
    return ok(NewToken(name=body.name, role=body.role, token=value, path=path))


@router.patch("/{name}", operation_id="changeTokenRole", summary="Give a token another role")
async def patch_token(context: Context, name: TokenName, body: RoleBody) -> Ok[ChangedRole]:
    """The token stays the same. Open pages load again with the new role at once; streams are closed."""
    await asyncio.to_thread(change_role, context, name, body.role)
    context.connections.end_revoked()
    return ok(ChangedRole(name=name, role=body.role))


@router.delete("/{name}", operation_id="revokeToken", summary="Revoke the token of a person")
async def delete_token(context: Context, name: TokenName) -> Ok[RevokedToken]:
    """The token and its sessions end at once, open pages and streams included."""
    await asyncio.to_thread(revoke_token, context, name)
    context.connections.end_revoked()
    return ok(RevokedToken(name=name))
