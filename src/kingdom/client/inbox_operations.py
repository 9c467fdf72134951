"""The operations of the API: inbox. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from kingdom.client.connection import Connection, given
from kingdom.client.models import Page
from kingdom.client.models.inbox import Acknowledged, InboxItem, Muted, MutedItem


class InboxOperations(Connection):
    """The operations of the API: inbox."""

    def list_inbox(self) -> Page[InboxItem]:
        """List what needs a person, newest first."""
        answer: Page[InboxItem] = self.request("GET", "/api/inbox")
        return answer

    def acknowledge_inbox(self, *, ids: list[str], user: str | None = None) -> Acknowledged:
        """Acknowledge items of the inbox."""
        answer: Acknowledged = self.request("POST", "/api/inbox/acknowledge", body=given({"ids": ids, "user": user}))
        return answer

    def list_muted(self) -> Page[MutedItem]:
        """List muted items, the latest first."""
        answer: Page[MutedItem] = self.request("GET", "/api/inbox/muted")
        return answer

    def mute_inbox(self, *, ids: list[str], until: str | None = None, user: str | None = None) -> Muted:
        """Mute items of the inbox."""
        answer: Muted = self.request("POST", "/api/inbox/mute", body=given({"ids": ids, "until": until, "user": user}))
        return answer

    def unmute_inbox(self, *, ids: list[str]) -> Muted:
        """End the muting of items."""
        answer: Muted = self.request("POST", "/api/inbox/unmute", body=given({"ids": ids}))
        return answer
