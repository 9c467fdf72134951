"""Who we are in Slack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kingdom.court.envoy.slack.api import SlackApi


class Identity:
    """Our own user, asked for once."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._user: str | None = None
        self._bot: str | None = None

    async def user(self) -> str:
        """Our user id."""
        if self._user is None:
            answer = await self._api.call("auth.test")
            self._user, self._bot = str(answer.get("user_id")), answer.get("bot_id")
        return self._user

    async def wrote(self, post: dict[str, Any]) -> bool:
        """Whether a post is ours. What others put into theirs proves nothing."""
        user = await self.user()
        return post.get("user") == user or (self._bot is not None and post.get("bot_id") == self._bot)
