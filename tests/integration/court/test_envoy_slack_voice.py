"""The envoy's voice in Slack: every message once, in its thread, at the pace that Slack allows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.envoy.role import Envoy
from tests.support.embassies import EVENT, TASK, Embassy
from tests.support.fake_slack import ANN, BOT, CHANNEL, DIRECT, Fault


@pytest.fixture
async def embassy(tmp_path: Path) -> AsyncIterator[Embassy]:
    async with Embassy(tmp_path).open() as opened:
        yield opened


async def look(embassy: Embassy, role: Envoy, times: int = 1, seconds: float = 1.0) -> None:
    for _ in range(times):
        await role.tick()
        embassy.clock.now += seconds


async def test_a_task_has_a_thread_from_its_start_to_its_end(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start", "gen-pr started")
        await look(embassy, role)
        (root,) = embassy.slack.posts
        mapping = embassy.state("thread-mappings")[TASK]
        assert (mapping["channel"], mapping["thread_ts"]) == (CHANNEL, root["ts"])
        assert (mapping["event_id"], mapping["created_at"]) == (EVENT, "2026-02-07T12:00:00.000Z")
        assert root["reactions"] == {"eyes"}
        await embassy.tell(2, "thread_update", "gen-pr finished", status="success")
        await look(embassy, role)
    assert embassy.slack.texts(thread_ts=root["ts"]) == ["gen-pr finished"]
    assert root["reactions"] == {"white_check_mark"}
    assert embassy.state("thread-mappings") == {}
    assert embassy.messages("sent") == ["msg-20260207-001", "msg-20260207-002"]
    assert [line["msg_id"] for line in embassy.journal("message.sent")] == embassy.messages("sent")


@pytest.mark.parametrize("status", ["failed", "timeout", "killed"])
async def test_a_failure_shows_and_what_follows_has_no_thread_any_more(embassy: Embassy, status: str) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start")
        await embassy.tell(2, "thread_update", "it failed", status=status)
        await embassy.tell(3, "notification", "afterwards")
        await look(embassy, role, 3)
    root = embassy.slack.posts[0]
    assert root["reactions"] == {"x"}
    assert embassy.slack.texts(thread_ts=root["ts"]) == ["it failed"]
    assert embassy.slack.texts() == ["hello", "afterwards"]


@pytest.mark.parametrize("last", [1, 2])
async def test_what_follows_a_message_of_a_closed_thread_is_there_too(embassy: Embassy, last: int) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start")
        await embassy.tell(2, "thread_update", "finished, but not landed", status="success")
        await look(embassy, role, 2)
        await embassy.tell(3, "thread_update", "landed", status="success", follows=f"msg-20260207-00{last}")
        await embassy.tell(4, "thread_update", "other", status="success", follows="../../x")
        await look(embassy, role, 2)
    root = embassy.slack.posts[0]
    assert embassy.slack.texts(thread_ts=root["ts"]) == ["finished, but not landed", "landed"]
    assert embassy.slack.texts() == ["hello", "other"]
    assert embassy.state("thread-mappings") == {}


async def test_a_resumed_task_goes_on_in_the_thread_of_the_first(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start")
        await embassy.tell(2, "human_input_request", "red?", choices=["yes"])
        resumed = {"task_id": "task-20260207-002", "original_task_id": TASK}
        await embassy.tell(3, "human_input_request", "really?", choices=["yes"], **resumed)
        await look(embassy, role, 3)
        assert embassy.state("awaiting-responses").keys() == {TASK, "task-20260207-002"}
        await embassy.tell(4, "thread_update", "done", status="success", **resumed)
        await look(embassy, role)
    root, closed = embassy.slack.posts[0], "This question was answered outside Slack, or is no longer needed."
    # Two questions never share a thread.
    assert embassy.slack.texts(thread_ts=root["ts"]) == [f"red?\n{closed}", "done"]
    assert embassy.state("awaiting-responses") == embassy.state("thread-mappings") == {}


async def test_the_text_of_others_is_shown_as_it_is_and_not_obeyed(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, content="<!channel> a & b <https://evil|click> \x1b[2J")
        await look(embassy, role)
    assert embassy.slack.texts() == [
        "&lt;!channel&gt; a &amp; b &lt;https://evil|click&gt; \N{REPLACEMENT CHARACTER}[2J"
    ]


def shown(post: dict[str, Any]) -> str:
    """The text in the blocks of a post."""
    found = []
    for block in post["blocks"]:
        for element in block.get("elements", ()):
            found += [item.get("text", "") for item in element.get("elements", ())]
    return "".join(found)


async def test_markdown_is_formatted_and_its_text_is_there_for_notifications(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start", "# 검토\n\n- **one**\n- two")
        await embassy.tell(2, "thread_update", "step *two*")
        await embassy.tell(3, "thread_update", "step three")
        await look(embassy, role, 5)
    started, update = embassy.slack.posts
    assert started["text"] == "# 검토\n\n- **one**\n- two"
    heading, listed = started["blocks"][0]["elements"]
    assert heading["elements"][0] == {"type": "text", "text": "검토", "style": {"bold": True}}
    assert listed["type"] == "rich_text_list"
    assert shown(update) == "step two\nstep three\n", "the blocks grow with the text"


async def test_a_long_text_goes_on_in_the_thread_each_part_once(embassy: Embassy) -> None:
    content = "\n\n".join(f"paragraph {number} " + "한글 " * 100 for number in range(60))
    async with embassy.sent() as role:
        await embassy.tell(1, "notification", content)
        await embassy.tell(2, "human_input_request", content, choices=["x" * 200], task_id="task-20260207-009")
        embassy.slack.fail("chat.postMessage", "limit", retry_after=3)
        await look(embassy, role, 60)
        assert embassy.messages("pending") == []
    notification, question = [post for post in embassy.slack.posts if post.get("thread_ts") is None]
    for first in (notification, question):
        thread = [post for post in embassy.slack.posts if post.get("thread_ts") == first["ts"]]
        assert len(thread) >= 2
        words = [word for post in (first, *thread) for word in shown(post).split() if word.isdecimal()]
        assert words == [str(number) for number in range(60)], "whole, in order, nothing twice"
        assert "Continued below" in first["blocks"][-1]["elements"][0]["text"]
    assert len(question["blocks"][-3]["elements"][0]["text"]["text"]) == 75
    intents = embassy.slack.intents()
    assert len(set(intents)) == len(intents) == len(embassy.slack.posts)


async def test_what_is_far_too_long_is_cut_and_says_so(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, content="<" * 100_000)
        await look(embassy, role, 60)
    assert len(embassy.slack.posts) == 10
    assert f"(shortened; `kingdom trace {TASK}` shows the full text)" in shown(embassy.slack.posts[-1])


async def test_a_channel_is_found_by_its_name_once_on_any_page(embassy: Embassy) -> None:
    embassy.slack.page = 1
    embassy.slack.channels = {"C0OTHER": "other", CHANNEL: "kingdom"}
    async with embassy.sent() as role:
        await embassy.tell(1)
        await look(embassy, role)
    async with embassy.sent() as role:
        await embassy.tell(2)
        await look(embassy, role)
    assert len(embassy.slack.texts()) == 2
    assert len(embassy.slack.called("conversations.list")) == 2  # two pages, and then it is known


async def test_updates_that_follow_closely_become_one_post_that_grows(embassy: Embassy) -> None:
    await embassy.event()
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start")
        for number in range(2, 6):
            await embassy.tell(number, "thread_update", f"step {number}")
        await look(embassy, role, 10)
        _, update = embassy.slack.posts
        assert update["text"] == "step 2\nstep 3\nstep 4\nstep 5"
        embassy.clock.now += 60
        await embassy.tell(6, "thread_update", "much later")
        await embassy.tell(7, "human_input_request", "so?")
        await embassy.tell(8, "thread_update", "after the question")
        await look(embassy, role, 5)
    assert [post["text"] for post in embassy.slack.posts[2:]] == ["much later", "so?", "after the question"]
    assert embassy.slack.intents() == [f"msg-20260207-{number:03d}" for number in range(1, 9)]
    assert len(embassy.messages("sent")) == 8


async def test_an_update_whose_post_was_deleted_is_posted_anew(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start")
        await embassy.tell(2, "thread_update", "step 2")
        await look(embassy, role, 2)
        embassy.slack.posts.pop()
        await embassy.tell(3, "thread_update", "step 3")
        await look(embassy, role, 3)
    assert embassy.slack.texts(thread_ts=embassy.slack.posts[0]["ts"]) == ["step 3"]


async def test_a_channel_is_not_spoken_in_faster_than_once_a_second(tmp_path: Path) -> None:
    async with Embassy(tmp_path, posts_per_second=1.0).open() as embassy, embassy.sent() as role:
        for number in range(1, 11):
            await embassy.tell(number, task_id=f"task-20260207-{number:03d}")
        waits = []
        while embassy.messages("pending"):
            waits.append(await role.tick())
            embassy.clock.now += 0.5
        times = sorted(float(post["ts"]) for post in embassy.slack.posts)
        assert all(late - early >= 3 for early, late in zip(times, times[6:], strict=False)), (
            "three at once, then one a second"
        )
        assert waits[0] == 1.0
    assert embassy.slack.intents() == [f"msg-20260207-{number:03d}" for number in range(1, 11)]


async def test_when_slack_asks_to_wait_that_channel_waits_as_long_and_no_attempt_is_spent(embassy: Embassy) -> None:
    embassy.slack.members.add("G0SECRET")
    async with embassy.sent(attempts=1) as role:
        embassy.slack.fail("chat.postMessage", "limit", retry_after=30)
        await embassy.tell(1, "thread_start")
        await embassy.tell(2, "thread_update", "in order")
        assert await role.tick() == 30.0
        assert embassy.slack.posts == []
        embassy.clock.now += 29
        await role.tick()
        assert len(embassy.slack.called("chat.postMessage")) == 1
        embassy.clock.now += 1
        await look(embassy, role, 2)
    assert [post["text"] for post in embassy.slack.posts] == ["hello", "in order"]
    assert embassy.messages("failed") == []


@pytest.mark.parametrize("fault", ["silent", "cut"])
@pytest.mark.parametrize("kind", ["notification", "thread_start", "thread_update", "human_input_request"])
async def test_a_post_that_was_accepted_but_not_confirmed_is_found_again_and_not_repeated(
    embassy: Embassy, fault: str, kind: str
) -> None:
    embassy.slack.page = 2
    async with embassy.sent(seconds=0.3) as role:
        await embassy.tell(1, "thread_start", task_id="task-20260207-002", event_id="evt-github-2")
        await embassy.tell(2, "thread_start")
        await look(embassy, role, 2)
        embassy.slack.fail("chat.postMessage", fault)
        await embassy.tell(3, kind, "once")
        await look(embassy, role, 1)
        for number in range(5):
            embassy.slack.posted(f"chatter {number}", thread_ts=embassy.state("thread-mappings")[TASK]["thread_ts"])
            embassy.slack.posted(f"chatter {number}")
        await look(embassy, role, 3)
    assert [post["text"] for post in embassy.slack.posts if post["user"] == BOT].count("once") == 1
    assert embassy.messages("sent") == [f"msg-20260207-{number:03d}" for number in (1, 2, 3)]


@pytest.mark.parametrize("whose", ["another app", "another court"])
async def test_what_others_say_under_the_same_number_is_not_taken_for_our_post(embassy: Embassy, whose: str) -> None:
    async with embassy.sent(seconds=0.3) as role:
        embassy.slack.fail("chat.postMessage", "lost")
        await embassy.tell(1)
        await role.tick()
        own = (embassy.home.role("envoy") / "court-id").read_text().strip()
        user, court = ("U0OTHERAPP", own) if whose == "another app" else (BOT, "of somebody else")
        payload = {"court": court, "intent": "msg-20260207-001", "intents": ["msg-20260207-001"]}
        embassy.slack.posted("theirs", user=user)
        embassy.slack.posts[-1]["metadata"] = {"event_type": "kingdom_message", "event_payload": payload}
        await look(embassy, role, 3)
    assert [post["text"] for post in embassy.slack.posts] == ["theirs", "hello"]


async def test_what_slack_refuses_is_tried_again_then_lies_in_failed_and_the_others_go_out(embassy: Embassy) -> None:
    async with embassy.sent(attempts=3) as role:
        embassy.slack.members.clear()
        await embassy.tell(1, "thread_start", "never")
        await look(embassy, role, 10)
        embassy.slack.members.add(CHANNEL)
        await embassy.tell(2, "notification", "later")
        await look(embassy, role)
        assert role.report()["failed"] == 1
    assert (embassy.messages("failed"), embassy.slack.texts()) == (["msg-20260207-001"], ["later"])
    (letter,) = await embassy.services.bus.dead("messages")
    assert "not_in_channel (invite the app" in (letter.error_message or "")


async def test_what_waits_for_its_next_try_holds_up_its_own_thread_only(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        embassy.slack.fail("chat.postMessage", "refuse", error="invalid_arguments")
        await embassy.tell(1, "thread_start", "first")
        await embassy.tell(2, "thread_update", "second")
        await embassy.tell(3, "notification", "another task", task_id="task-20260207-002", event_id="evt-github-2")
        await role.tick()
        assert embassy.slack.texts() == ["another task"]
        await look(embassy, role, 3)
    assert embassy.slack.texts() == ["another task", "first"]
    assert embassy.slack.texts(thread_ts=embassy.slack.posts[1]["ts"]) == ["second"]


async def test_while_slack_is_away_nothing_is_given_up(embassy: Embassy) -> None:
    url, embassy.slack.url = embassy.slack.url, "http://127.0.0.1:9/api/"
    async with embassy.sent(attempts=1) as role:
        await embassy.tell(1)
        await look(embassy, role, 30, seconds=60)
        assert embassy.messages("pending") == ["msg-20260207-001"]
    embassy.slack.url = url
    async with embassy.sent(attempts=1) as role:
        await look(embassy, role)
    assert embassy.slack.texts() == ["hello"]


OUTAGES = [
    ("refuse", "token_expired"),
    ("refuse", "invalid_auth"),
    ("refuse", "account_inactive"),
    ("refuse", "internal_error"),
    ("refuse", "service_unavailable"),
    ("lost", ""),
]


@pytest.mark.parametrize(("kind", "error"), OUTAGES)
async def test_an_outage_or_a_refused_token_holds_all_messages_and_they_are_posted_in_order(
    embassy: Embassy, kind: str, error: str
) -> None:
    embassy.slack.out_of_order = Fault(kind, error)
    async with embassy.sent(attempts=1) as role:
        for number in (1, 2, 3):
            context = {"task_id": f"task-20260207-{number:03d}", "event_id": f"evt-github-{number}"}
            await embassy.tell(number, content=f"number {number}", **context)
        await look(embassy, role, 60, seconds=60)
        assert embassy.messages("failed") == []
        assert (error or "no response") in role.report()["problem"]
        tried = len(embassy.slack.called("chat.postMessage"))
        assert tried <= 61, "one message at a time finds out whether it is over"
        embassy.slack.out_of_order = None
        await look(embassy, role, 3, seconds=60)
        assert "problem" not in role.report()
    assert embassy.slack.texts() == ["number 1", "number 2", "number 3"]


async def test_what_slack_fails_at_while_it_takes_other_messages_waits_a_day_and_is_then_given_up(
    embassy: Embassy,
) -> None:
    async with embassy.sent(attempts=2) as role:
        embassy.slack.fail("chat.postMessage", "refuse", error="fatal_error")
        await embassy.tell(1, content="poison")
        other = {"task_id": "task-20260207-002", "event_id": "evt-github-2"}
        await embassy.tell(2, content="another", **other)
        await look(embassy, role)
        assert embassy.slack.texts() == ["another"]
        embassy.slack.fail("chat.postMessage", "refuse", times=1000, error="fatal_error")
        await look(embassy, role, 280, seconds=300)
        assert embassy.messages("failed") == []
        await look(embassy, role, 20, seconds=300)
    assert embassy.messages("failed") == ["msg-20260207-001"]


async def test_a_token_that_opens_connections_does_not_end_the_pause_of_the_other(embassy: Embassy) -> None:
    embassy.slack.fail("chat.postMessage", "refuse", error="token_expired")
    async with embassy.sent() as role:
        await embassy.tell(1)
        await role.tick()
        before = embassy.slack.opened
        await embassy.slack.sockets[-1].response.close()
        await embassy.slack.until(lambda: embassy.slack.opened > before)
        await embassy.tell(2, task_id="task-20260207-002", event_id="evt-github-2")
        await role.tick()
        assert len(embassy.slack.called("chat.postMessage")) == 1


async def test_a_report_is_noted_by_its_day(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "report", "all is well")
        await look(embassy, role)
    assert embassy.state("report-sent") == {
        "date": "2026-02-07",
        "msg_id": "msg-20260207-001",
        "sent_at": "2026-02-07T12:00:00.000Z",
    }


async def test_what_was_asked_for_in_slack_is_answered_where_it_was_asked(embassy: Embassy) -> None:
    event = embassy.slack.posted("please look", channel=DIRECT)
    event_id = f"evt-slack-{DIRECT}-{event['ts']}"
    async with embassy.sent() as role:
        embassy.hear(embassy.slack.envelope(event))
        await look(embassy, role)
        assert embassy.slack.reactions(event["ts"]) == {"eyes"}
        await embassy.tell(1, "thread_start", "started", event_id=event_id)
        await embassy.tell(2, "thread_update", "found it", event_id=event_id, status="success")
        await look(embassy, role, 2)
    assert embassy.slack.texts(DIRECT, event["ts"]) == ["started", "found it"]
    assert embassy.slack.reactions(event["ts"]) == {"white_check_mark"}
    assert embassy.state("received") == {}


async def test_a_question_that_was_answered_outside_slack_names_the_answer_when_the_task_ends(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start")
        await embassy.tell(2, "human_input_request", "which?", choices=["red", "blue"])
        await look(embassy, role, 2)
        await embassy.answer("red & blue", "ada <admin>")
        await embassy.tell(3, "thread_update", "done", status="success", task_id=f"{TASK[:-1]}2", original_task_id=TASK)
        await look(embassy, role)
    question = embassy.slack.posts[1]
    assert question["text"].endswith("Answered by ada &lt;admin&gt;: red &amp; blue")
    assert not any(block["type"] == "actions" for block in question["blocks"])
    assert embassy.state("awaiting-responses") == {}


async def test_a_question_of_a_task_that_is_cancelled_has_no_buttons_any_more(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1, "thread_start")
        await embassy.tell(2, "human_input_request", "which?", choices=["red", "blue"])
        await embassy.tell(3, "thread_update", "cancelled by ada", status="cancelled")
        await look(embassy, role, 3)
    started, question, _ = embassy.slack.posts
    assert question["text"].endswith("This question was answered outside Slack, or is no longer needed.")
    assert not any(block["type"] == "actions" for block in question["blocks"])
    assert started["reactions"] == {"x"}


async def test_a_message_may_go_to_a_person(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.tell(1)
        path = embassy.home.queue / "messages/pending/msg-20260207-001.json"
        path.write_text(path.read_text().replace('"channel": ""', f'"channel": "{ANN}"'))
        await look(embassy, role)
    assert embassy.slack.texts(DIRECT) == ["hello"]


async def test_threads_whose_end_nobody_told_are_taken_out(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await embassy.event()
        await embassy.tell(1, "thread_start")
        await embassy.tell(2, "human_input_request", "red?")
        await look(embassy, role, 2, seconds=61)
        assert embassy.state("thread-mappings").keys() == embassy.state("awaiting-responses").keys() == {TASK}
        (delivery,) = await embassy.services.bus.claim("events", worker="king")
        await embassy.services.bus.settle(done=[delivery])
        await look(embassy, role, 2, seconds=61)
    assert embassy.state("thread-mappings") == embassy.state("awaiting-responses") == {}
    assert "This question was answered outside Slack" in embassy.slack.posts[1]["text"]


# ── one thread for what was asked for ─────────────────────────────────────────────────────────────────────────────

TOPIC = "acme/shop#5"


async def reported(embassy: Embassy, role: Envoy, first: int, **context: Any) -> None:
    """Report a task from its start to its end."""
    more = {"task_id": f"task-20260207-{first:03d}", "event_id": f"evt-github-{first}", "topic": TOPIC, **context}
    await embassy.tell(first, "thread_start", "started", **more)
    await embassy.tell(first + 1, "thread_update", "finished", status="success", **more)
    await look(embassy, role, 3)


async def test_tasks_about_the_same_are_reported_in_one_thread(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await reported(embassy, role, 1)
        await reported(embassy, role, 3, topic="acme/shop#6")
        embassy.clock.now += 20 * 86400
        await reported(embassy, role, 5)
    async with embassy.sent() as role:
        embassy.clock.now += 20 * 86400
        await reported(embassy, role, 7)
        embassy.clock.now += 31 * 86400
        await reported(embassy, role, 9)
    first, other, late = [post for post in embassy.slack.posts if not post.get("thread_ts")]
    assert embassy.slack.texts(thread_ts=first["ts"]) == ["finished", "started", "finished", "started", "finished"]
    assert embassy.slack.texts(thread_ts=other["ts"]) == embassy.slack.texts(thread_ts=late["ts"]) == ["finished"]
    again = [post for post in embassy.slack.posts if post.get("thread_ts") == first["ts"] and post["text"] == "started"]
    assert [post["reactions"] for post in (first, *again)] == [{"white_check_mark"}] * 3, "each task shows its own end"


async def test_results_alone_share_a_thread_too_and_a_deleted_one_is_replaced(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        for number in (1, 2):
            await embassy.tell(number, content=f"result {number}", status="success", topic=TOPIC)
            await look(embassy, role)
        (root,) = [post for post in embassy.slack.posts if not post.get("thread_ts")]
        assert embassy.slack.texts(thread_ts=root["ts"]) == ["result 2"]
        embassy.slack.posts.clear()
        await embassy.tell(3, content="result 3", status="success", topic=TOPIC)
        await look(embassy, role, 3)
    assert embassy.slack.texts() == ["result 3"]
    assert embassy.messages("failed") == []


async def test_what_comes_of_a_request_later_is_told_in_its_thread(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        asked = embassy.slack.posted(f"<@{BOT}> sort it", ANN)
        topic = f"slack-{CHANNEL}-{asked['ts']}"
        await embassy.tell(1, content="gen-slack finished acme/shop#7\nSorted.", status="success", topic=topic)
        await look(embassy, role)
    assert embassy.slack.texts(thread_ts=asked["ts"]) == ["gen-slack finished acme/shop#7\nSorted."]
