"""From the names of channels, as people write them, to the ids that Slack wants."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kingdom.court.envoy.slack.errors import SlackProblem
from kingdom.court.files import read_json, write_json

if TYPE_CHECKING:
    from kingdom.court.envoy.slack.api import SlackApi
    from kingdom.court.home import Home

_CHANNEL: Final = re.compile(r"[CGD][A-Z0-9]{2,30}\Z")
_USER: Final = re.compile(r"@?([UW][A-Z0-9]{2,30})\Z")


class NoChannel(SlackProblem):
    """Nobody knows where a message should go."""


class Channels:
    """What is looked up once is kept in ``state/envoy/channels.json``."""

    def __init__(self, api: SlackApi, home: Home, default: str) -> None:
        self._api = api
        self._path = home.role("envoy") / "channels.json"
        self._default = default
        found = read_json(self._path)
        self._known: dict[str, str] = found if isinstance(found, dict) else {}

    def key(self, name: str) -> str:
        """The id of a channel if it is known, else its name."""
        wanted = name or self._default
        return self._known.get(wanted, wanted)

    async def resolve(self, name: str) -> str:
        """The id of a channel; raises :class:`NoChannel` when there is none of that name."""
        wanted = self.key(name)
        if not wanted:
            raise NoChannel("the message names no channel, and none is set: slack.channel in config/envoy.yaml")
        found = await find_channel(self._api, wanted)
        if found != wanted:
            self._known[wanted] = found
            write_json(self._path, self._known)
        return found

    def forget(self, channel: str) -> None:
        """A channel that is not there any more: look again."""
        self._known = {name: one for name, one in self._known.items() if one != channel}
        write_json(self._path, self._known)


async def find_channel(api: SlackApi, name: str) -> str:
    """Ask Slack for the id of a channel, by its name, its id or the id of a person."""
    if _CHANNEL.match(name):
        return name
    if user := _USER.match(name):
        answer = await api.call("conversations.open", users=user[1])
        return str(answer["channel"]["id"])
    listed = api.pages(
        "conversations.list", "channels", types="public_channel,private_channel", exclude_archived="true", limit=1000
    )
    async for channel in listed:
        if channel.get("name") == name.removeprefix("#"):
            return str(channel["id"])
    raise NoChannel(f"the app sees no channel {name}: invite it there, or give the channel's id instead")
