"""What voice and ears share: the way to Slack, the state on the disk, and the words."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from kingdom.court.envoy.slack.api import SlackApi
from kingdom.court.envoy.slack.channels import Channels
from kingdom.court.envoy.slack.courtesies import Courtesies
from kingdom.court.envoy.slack.form import closed
from kingdom.court.envoy.slack.identity import Identity
from kingdom.court.envoy.slack.pace import Pace
from kingdom.court.envoy.slack.posts import Posts
from kingdom.court.envoy.slack.threads import Threads
from kingdom.court.trust.judging import TrustFile
from kingdom.court.trust.people import People, Person

if TYPE_CHECKING:
    from kingdom.court.config.system import SystemConfig
    from kingdom.court.envoy.config import SlackSection, Tokens
    from kingdom.court.loop import Services


class Desk:
    """All of it."""

    def __init__(
        self,
        services: Services,
        config: SlackSection,
        system: SystemConfig,
        tokens: Tokens,
        *,
        api_seconds: float = 10.0,
    ) -> None:
        self.services = services
        self.clock = services.clock
        self.config = config
        self.trust = TrustFile(services.home, config.users)
        self.locale = system.locale
        self.zone = ZoneInfo(system.timezone)
        self.threads = Threads(services.home)
        self.posts = Posts(services.home)
        self.api = SlackApi(tokens, config.api_url, services.clock, api_seconds)
        self.identity = Identity(self.api)
        self.channels = Channels(self.api, services.home, config.channel or system.channel)
        self.pace = Pace(config.posts_per_second, services.clock)
        self.courtesies = Courtesies(self.api, services.clock, reactions=config.reactions)

    def allows(self, user: str, channel: str) -> bool:
        """Whether somebody may ask and answer."""
        return self.trust.load().judge(People(Person("slack", user, channel=channel))).permit is not None

    async def close_question(self, task_id: str, said: str) -> None:
        """A question is over: it shows what came of it, and is not awaited any more."""
        entry = self.threads.awaiting.get(task_id)
        if entry is None:
            return
        text, blocks = closed(str(entry.get("text", "")), said)
        self.courtesies.owe("chat.update", channel=entry["channel"], ts=entry["message_ts"], text=text, blocks=blocks)
        await self.courtesies.pay()
        if (post := self.posts.read(entry["msg_id"])) is not None:
            post.answered = True  # should its message have to be said to its end once more, it is not asked again
            self.posts.write(entry["msg_id"], post)
        self.threads.awaiting.remove([task_id])
