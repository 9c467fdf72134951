"""The browsers that are logged in, as the API and the dashboard show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from kingdom.web.envelope import ApiModel
from kingdom.web.security.roles import Person, Role
from kingdom.web.security.sessions import UnknownSession

if TYPE_CHECKING:
    from kingdom.web.context import WebContext

# The first that a user agent contains: those that are built on another name that one, too.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser", "Samsung Internet"),
    ("Firefox", "Firefox"),
    ("FxiOS", "Firefox"),
    ("Chrome", "Chrome"),
    ("CriOS", "Chrome"),
    ("Safari", "Safari"),
)
_SYSTEMS: Final = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


class BrowserSession(ApiModel):
    """A browser that is logged in."""

    id: str = Field(examples=["8f1c2a4b9d3e5f60718293a4"])
    name: str = Field(description="Who is logged in.", examples=["ann"])
    role: Role = Field(examples=["answer"])
    method: Literal["token", "oidc"] = Field(description="With a token, or with an account of the provider.")
    created_at: str = Field(description="When they logged in.", examples=["2026-02-07T12:00:00.000Z"])
    last_seen_at: str | None = Field(description="To the minute; null: never.", examples=["2026-02-07T12:05:00.000Z"])
    address: str = Field(description="Where they logged in from.", examples=["192.0.2.7"])
    user_agent: str = Field(examples=["Mozilla/5.0 (X11; Linux x86_64) Firefox/149.0"])
    current: bool = Field(description="Whether it is the session of this request.")


def device_name(user_agent: str) -> str:
    """Return browser and system of a user agent, such as ``Firefox · Linux``; the text itself if both are unknown."""
    found = (next((name for part, name in known if part in user_agent), "") for known in (_BROWSERS, _SYSTEMS))
    return " · ".join(filter(None, found)) or user_agent[:60] or "–"


def list_sessions(context: WebContext, person: Person) -> list[BrowserSession]:
    """Return the sessions of a person, the newest first; all of them for those with the role ``own``."""
    return [
        BrowserSession(
            id=session.id,
            name=who.name,
            role=who.role,
            method="token" if session.claims is None else "oidc",
            created_at=session.created_at,
            last_seen_at=session.last_seen_at,
            address=session.address,
            user_agent=session.agent,
            current=session.id == person.session,
        )
        for session, who in context.sessions.list()
        if person.role == "own" or who.key == person.key
    ]


def end_session(context: WebContext, person: Person, session_id: str) -> str:
    """End a session that :func:`list_sessions` shows. The caller ends its connections, in the event loop.

    Returns the name of its person. Raises :class:`~kingdom.web.security.sessions.UnknownSession`.
    """
    for found in list_sessions(context, person):
        if found.id == session_id:
            context.sessions.end(session_id)
            return found.name
    raise UnknownSession(f"there is no session {session_id!r:.80}, or it ended already: reload the list")
