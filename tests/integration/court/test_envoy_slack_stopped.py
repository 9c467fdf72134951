"""An envoy who dies between any two things he does: no message twice, none lost, no event twice, none lost.

`make walks` tries every point, `make test` some: before and after each call of Slack, each write of a file, each change
of a queue and each line of the journal; and once more while the successor is finding his way.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base import files
from kingdom.court.envoy.role import Envoy
from kingdom.court.envoy.slack import listener
from kingdom.court.envoy.slack.api import SlackApi
from kingdom.court.loop import Services
from tests.support.embassies import TASK, Embassy
from tests.support.fake_slack import BOT, CHANNEL, DIRECT
from tests.support.stopping import StoppableBus, Stopped, Stopper

Scene = Callable[["Play"], Awaitable[None]]


class StoppableJournal:
    """A journal whose lines are points to stop at."""

    def __init__(self, journal: Any, stopper: Stopper) -> None:
        self._journal = journal
        self._stopper = stopper

    def emit(self, *line: Any) -> None:
        """Write a line, unless stopped before it, or after."""
        self._stopper.point("before a line of the journal")
        self._journal.emit(*line)
        self._stopper.point("after a line of the journal")


@contextlib.contextmanager
def stoppable(stopper: Stopper) -> Iterator[None]:
    """Make calls of Slack and changes of files points to stop at."""

    def around(act: Callable[..., Any], name: str) -> Callable[..., Any]:
        def stoppable_act(*args: Any, **options: Any) -> Any:
            stopper.point(f"before {name}")
            return act(*args, **options)

        return stoppable_act

    call = SlackApi.call

    async def stoppable_call(self: SlackApi, method: str, **arguments: Any) -> dict[str, Any]:
        stopper.point(f"before {method}")
        answer = await call(self, method, **arguments)
        stopper.point(f"after {method}")
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlackApi, "call", stoppable_call)
        for module in (files, listener):
            patch.setattr(module, "write_atomic", around(files.write_atomic, "writing a file"))
        patch.setattr(listener.SlackInbox, "remove", around(listener.SlackInbox.remove, "taking out of the inbox"))
        yield


class Play:
    """An embassy in which the envoy may be stopped; what others do is done once, and in any case."""

    def __init__(self, embassy: Embassy, stopper: Stopper) -> None:
        self.embassy = embassy
        self._stopper = stopper
        self._role: Envoy | None = None

    async def serve(self) -> None:
        """The envoy looks until there is nothing to do. If he is stopped, the next one does."""
        embassy = self.embassy
        while True:
            try:
                with stoppable(self._stopper):
                    if self._role is None:
                        bus: Any = StoppableBus(embassy.services.bus, self._stopper)
                        journal: Any = StoppableJournal(embassy.services.journal, self._stopper)
                        self._role = embassy.envoy(Services(embassy.home, bus, journal, embassy.clock))
                        await self._role.start()
                    await self._role.tick()
            except Stopped:
                assert self._role is not None
                await self._role.stop()
                self._role = None
            embassy.clock.now += 1
            if self._role is not None and not embassy.messages("pending") and not embassy.inbox():
                return

    async def end(self) -> dict[str, Any]:
        """How everything lies in the end."""
        await self.serve()
        assert self._role is not None
        await self._role.stop()
        embassy, posts = self.embassy, self.embassy.slack.posts
        places = {post["ts"]: number for number, post in enumerate(posts)}
        return {
            "posts": [
                (post["channel"], places.get(post.get("thread_ts")), post["text"], sorted(post["reactions"]))
                for post in posts
            ],
            "intents": embassy.slack.intents(),
            "sent": embassy.messages("sent"),
            "failed": embassy.messages("failed"),
            "events": [(event["type"], event["payload"].get("text")) for event in embassy.events()],
            "journal": {
                kind: Counter(tuple(sorted(line.items())) for line in self._plain(kind))
                for kind in ("message.sent", "message.human_response", "event.detected")
            },
            "threads": {task: places[entry["thread_ts"]] for task, entry in embassy.state("thread-mappings").items()},
            "questions": {
                task: places[entry["message_ts"]] for task, entry in embassy.state("awaiting-responses").items()
            },
            "received": len(embassy.state("received")),
            "report": embassy.state("report-sent").get("msg_id"),
        }

    def _plain(self, kind: str) -> list[dict[str, Any]]:
        """Lines without the time stamps of Slack, which depend on when it was told."""
        dropped = {"thread_ts", "event_id"}
        return [{k: v for k, v in line.items() if k not in dropped} for line in self.embassy.journal(kind)]


async def a_thread_from_start_to_end(play: Play) -> None:
    embassy = play.embassy
    await embassy.event()
    await embassy.tell(1, "thread_start", "started")
    await embassy.tell(2, "thread_update", "a step")
    await embassy.tell(3, "thread_update", "and another")
    await play.serve()
    await embassy.tell(4, "thread_update", "finished", status="success")
    await embassy.tell(5, "report", "a report")


async def a_long_text_that_needs_several_posts(play: Play) -> None:
    embassy = play.embassy
    await embassy.event()
    await embassy.tell(1, "thread_start", "# started")
    await embassy.tell(
        2, "thread_update", "\n\n".join(f"{number} " + "word " * 500 for number in range(8)), status="success"
    )


async def a_question_is_answered_by_two(play: Play) -> None:
    embassy = play.embassy
    await embassy.event()
    await embassy.tell(1, "thread_start", "started")
    await embassy.tell(2, "human_input_request", "red?", choices=["yes", "no"])
    await play.serve()
    question = embassy.slack.posts[-1]
    embassy.hear(embassy.slack.press(question, 0))
    embassy.hear(embassy.slack.envelope(embassy.slack.posted(f"<@{BOT}> no", thread_ts=embassy.slack.posts[0]["ts"])))
    await play.serve()
    await embassy.tell(3, "human_input_request", "blue?", task_id="task-20260207-002", original_task_id=TASK)


async def somebody_asks_and_is_answered(play: Play) -> None:
    embassy = play.embassy
    asked = embassy.slack.posted("please", channel=DIRECT)
    other = embassy.slack.posted(f"<@{BOT}> look")
    embassy.hear(embassy.slack.envelope(asked))
    for kind in ("message", "app_mention"):
        embassy.hear(embassy.slack.envelope({**other, "type": kind}))
    await play.serve()
    event_id = f"evt-slack-{DIRECT}-{asked['ts']}"
    await embassy.tell(1, "thread_start", "started", event_id=event_id)
    await embassy.tell(2, "human_input_request", "which?", event_id=event_id)
    await play.serve()
    reply = embassy.slack.posted("that one", channel=DIRECT, thread_ts=asked["ts"])
    embassy.hear(embassy.slack.envelope(reply))
    await play.serve()
    await embassy.tell(3, "thread_update", "failed", event_id=event_id, status="failed")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: hundreds of embassies are played."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as found:
        yield Path(found)


async def perform(root: Path, scene: Scene, stopper: Stopper) -> dict[str, Any]:
    async with Embassy(root, channel=CHANNEL).open() as embassy:
        play = Play(embassy, stopper)
        await scene(play)
        return await play.end()


@pytest.mark.parametrize(
    "scene",
    [
        a_thread_from_start_to_end,
        a_long_text_that_needs_several_posts,
        a_question_is_answered_by_two,
        somebody_asks_and_is_answered,
    ],
    ids=lambda scene: scene.__name__,
)
async def test_wherever_the_envoy_is_stopped_all_ends_as_if_he_had_not_been(
    scene: Scene, folder: Path, stride: int
) -> None:
    whole = Stopper()
    expected = await perform(folder / "whole", scene, whole)
    assert (expected["failed"], set(Counter(expected["intents"]).values())) == ([], {1})
    assert whole.passed > 30
    for point in range(1, whole.passed + 1, stride):
        ended = await perform(folder / f"{point}", scene, Stopper(point, point + 3))
        assert ended == expected, f"stopped {whole.trail[point - 1]} (point {point})"
