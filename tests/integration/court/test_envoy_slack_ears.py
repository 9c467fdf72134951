"""The envoy's ears in Slack: what people ask and answer becomes one event each, whatever the connection does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.envoy.role import Envoy
from kingdom.court.envoy.slack.listener import SlackInbox
from kingdom.court.patterns import NOBODY_SUBSCRIBES
from kingdom.court.questions import answers_in
from kingdom.court.queues import all_documents
from kingdom.court.trust.text_hash import text_hash
from tests.support.embassies import TASK, Embassy
from tests.support.fake_slack import ANN, BEN, BOT, CHANNEL, DIRECT, EVE, TEAM


@pytest.fixture
async def embassy(tmp_path: Path) -> AsyncIterator[Embassy]:
    async with Embassy(tmp_path).open() as opened:
        yield opened


async def connected(embassy: Embassy) -> None:
    await embassy.slack.until(lambda: embassy.slack.sockets)


async def hears(embassy: Embassy, role: Envoy, *envelopes: dict[str, Any]) -> None:
    """Envelopes come over the socket, are acknowledged, and dealt with."""
    await connected(embassy)
    for envelope in envelopes:
        await embassy.slack.delivered(envelope)
    await role.tick()


async def asked(embassy: Embassy, role: Envoy, *choices: str) -> dict[str, Any]:
    """A question in the thread of a task; returns its post."""
    await embassy.event()
    await embassy.tell(1, "thread_start")
    await embassy.tell(
        2, "human_input_request", "Which colour?", choices=list(choices), deadline="2026-02-08T12:00:00Z"
    )
    while embassy.messages("pending"):
        await role.tick()
        embassy.clock.now += 1
    return embassy.slack.posts[-1]


def answers(embassy: Embassy) -> list[tuple[str, str, str]]:
    return [
        (event["payload"]["task_id"], event["payload"]["text"], event["payload"]["user"])
        for event in embassy.events()
        if event["type"] == "slack.human_response"
    ]


async def test_a_direct_message_becomes_an_event(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        event = embassy.slack.posted("look at &lt;this&gt; &amp; <https://x.example|that>\nplease", channel=DIRECT)
        await hears(embassy, role, embassy.slack.envelope(event))
        assert role.report()["slack"] == {
            "connections": 1,
            "problem": "",
            "events": 1,
            "answers": 0,
            "refused": 0,
        }
    (found,) = embassy.events()
    assert (found["id"], found["type"]) == (f"evt-slack-{DIRECT}-{event['ts']}", "slack.dm.received")
    assert found["payload"] == {
        "title": "look at <this> & https://x.example please",
        "text": "look at <this> & https://x.example\nplease",
        "subject": f"slack-{DIRECT}-{event['ts']}",
        "user": ANN,
        "user_name": "ann",
        "team": TEAM,
        "channel": DIRECT,
        "ts": event["ts"],
        "thread_ts": None,
        "text_sha256": text_hash(found["payload"]),
    }
    assert embassy.journal("event.detected") == [
        {"event_id": found["id"], "source": "slack", "event_type": "slack.dm.received"}
    ]
    assert embassy.slack.reactions(event["ts"]) == {"eyes"}
    assert embassy.inbox() == []


@pytest.mark.parametrize("first", ["message", "app_mention"])
async def test_message_and_mention_of_one_post_are_one_event(embassy: Embassy, first: str) -> None:
    async with embassy.sent() as role:
        event = embassy.slack.posted(f"<@{BOT}> look at this")
        pair = [{**event, "type": kind} for kind in ("message", "app_mention")]
        if first == "app_mention":
            pair.reverse()
        await hears(embassy, role, *map(embassy.slack.envelope, pair))
        await hears(embassy, role, *map(embassy.slack.envelope, pair))
    (found,) = embassy.events()
    assert (found["type"], found["payload"]["text"]) == ("slack.mention.received", "look at this")


async def test_a_mention_that_the_message_did_not_show_is_heard_all_the_same(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        event = embassy.slack.posted("(a message in blocks)")
        await hears(embassy, role, embassy.slack.envelope(event))
        assert embassy.events() == []
        await hears(embassy, role, embassy.slack.envelope({**event, "type": "app_mention"}))
    assert [event["type"] for event in embassy.events()] == ["slack.mention.received"]


@pytest.mark.parametrize("seconds", [10, 400, 3600])
async def test_what_is_delivered_again_is_no_second_event_nor_a_second_answer(embassy: Embassy, seconds: int) -> None:
    async with embassy.sent() as role:
        question = await asked(embassy, role, "red", "blue")
        said = embassy.slack.envelope(embassy.slack.posted("hello", channel=DIRECT), "Ev1")
        reply = embassy.slack.posted("green", thread_ts=question["thread_ts"])
        envelopes = [said, embassy.slack.envelope(reply, "Ev2"), embassy.slack.press(question, 0)]
        await hears(embassy, role, *envelopes)
        before, whispers = embassy.events(), list(embassy.slack.whispers)
        embassy.clock.now += seconds
        for event in before:  # even if all of it was purged meanwhile
            (embassy.home.queue / f"events/pending/{event['id']}.json").unlink()
    async with embassy.sent() as role:
        again = [{**one, "retry_attempt": 1, "retry_reason": "timeout"} for one in envelopes]
        await hears(embassy, role, *again)
        assert [event for event in embassy.events() if event["source"] == "slack"] == []
    assert len(before) == 3  # the event of the task, the request, and the first answer
    assert embassy.slack.whispers == whispers
    assert len(embassy.journal("message.human_response")) == 1


async def test_nothing_is_acknowledged_that_is_not_on_the_disk(
    embassy: Embassy, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    store = SlackInbox.store

    def disk_full(self: SlackInbox, envelope: dict[str, Any]) -> None:
        if full:
            raise OSError(28, "No space left on device")
        store(self, envelope)
        assert any(envelope["envelope_id"] in name for name in embassy.inbox())
        assert envelope["envelope_id"] not in embassy.slack.acks

    monkeypatch.setattr(SlackInbox, "store", disk_full)
    async with embassy.sent() as role:
        await connected(embassy)
        envelope = embassy.slack.envelope(embassy.slack.posted("hello", channel=DIRECT))
        first = embassy.slack.sockets[-1]
        await embassy.slack.deliver(envelope)
        await embassy.slack.until(lambda: embassy.slack.opened > 1 and embassy.slack.sockets)
        assert first.acks == embassy.slack.acks == []
        assert "No space left" in role.report()["slack"]["problem"] or embassy.slack.sockets
        full = False
        await hears(embassy, role, envelope)
    assert len(embassy.events()) == 1


async def test_a_connection_that_breaks_during_the_write_costs_nothing(
    embassy: Embassy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SlackInbox.store

    def breaks(self: SlackInbox, envelope: dict[str, Any]) -> None:
        store(self, envelope)
        transport = embassy.slack.sockets[-1].response._req.transport  # type: ignore[union-attr]
        assert transport is not None
        transport.abort()
        monkeypatch.setattr(SlackInbox, "store", store)

    monkeypatch.setattr(SlackInbox, "store", breaks)
    async with embassy.sent() as role:
        await connected(embassy)
        envelope = embassy.slack.envelope(embassy.slack.posted("hello", channel=DIRECT))
        await embassy.slack.deliver(envelope)
        await embassy.slack.until(lambda: embassy.slack.opened > 1 and embassy.slack.sockets)
        await hears(embassy, role, {**envelope, "retry_attempt": 1})  # it was never acknowledged
    assert len(embassy.events()) == 1


async def test_a_new_connection_is_there_before_the_old_one_goes_and_both_are_heard(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        await connected(embassy)
        (old,) = embassy.slack.sockets
        await embassy.slack.deliver({"type": "disconnect", "reason": "refresh_requested"})
        await embassy.slack.until(lambda: len(embassy.slack.sockets) == 2)
        late = embassy.slack.envelope(embassy.slack.posted("by the old one", channel=DIRECT))
        await embassy.slack.deliver(late, old)
        await embassy.slack.until(lambda: old.acks == [late["envelope_id"]])
        await old.response.close()
        await embassy.slack.until(lambda: len(embassy.slack.sockets) == 1)
        await hears(embassy, role, embassy.slack.envelope(embassy.slack.posted("by the new one", channel=DIRECT)))
        assert role.report()["slack"]["connections"] == 1
    assert [event["payload"]["text"] for event in embassy.events()] == ["by the old one", "by the new one"]
    assert embassy.slack.opened == 2


async def test_it_connects_again_after_refusals_and_broken_connections(embassy: Embassy) -> None:
    embassy.slack.fail("apps.connections.open", "refuse", 2, error="internal_error")
    embassy.slack.fail("apps.connections.open", "lost")
    embassy.slack.fail("apps.connections.open", "limit", retry_after=0.01)
    async with embassy.sent():
        for number in (1, 2, 3):
            await embassy.slack.until(lambda number=number: embassy.slack.opened >= number and embassy.slack.sockets)
            await embassy.slack.sockets[-1].response.close()
    assert len(embassy.slack.called("apps.connections.open")) >= 7


async def test_an_answer_by_a_button_goes_on_the_record_and_closes_the_question(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        question = await asked(embassy, role, "red", "blue & <green>")
        waiting = embassy.state("awaiting-responses")[TASK]
        assert waiting["choices"] == ["red", "blue & <green>"]
        assert (waiting["message_ts"], waiting["deadline"]) == (question["ts"], "2026-02-08T12:00:00Z")
        envelope = embassy.slack.press(question, 1)
        await hears(embassy, role, envelope)
    assert answers(embassy) == [(TASK, "blue & <green>", ANN)]
    unix = envelope["payload"]["actions"][0]["action_ts"].partition(".")[0]
    assert embassy.events()[-1]["id"] == f"evt-slack-response-{TASK}-{unix}"
    assert embassy.journal("message.human_response") == [{"task_id": TASK, "thread_ts": question["thread_ts"]}]
    assert embassy.state("awaiting-responses") == {}
    assert question["text"].endswith(f"Answered by <@{ANN}>: blue &amp; &lt;green&gt;")
    assert not any(block["type"] == "actions" for block in question["blocks"])


async def test_an_answer_may_be_a_reply_in_the_thread(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        question = await asked(embassy, role)
        thread = question["thread_ts"]
        elsewhere = embassy.slack.posted("not an answer")
        reply = embassy.slack.posted(f"<@{BOT}> take &lt;green&gt;", thread_ts=thread)
        pair = [embassy.slack.envelope({**reply, "type": kind}) for kind in ("app_mention", "message")]
        await hears(embassy, role, embassy.slack.envelope(elsewhere), *pair)
    assert answers(embassy) == [(TASK, "take <green>", ANN)]
    assert [event for event in embassy.events() if event["type"].endswith("received")] == []


async def test_when_two_people_answer_at_once_the_first_one_counts(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        question = await asked(embassy, role, "red", "blue")
        by_hand = embassy.slack.posted("green", user=BEN, thread_ts=question["thread_ts"])
        mention = embassy.slack.posted(f"<@{BOT}> green", user=BEN, thread_ts=question["thread_ts"])
        await hears(
            embassy,
            role,
            embassy.slack.press(question, 0, ANN),
            embassy.slack.press(question, 1, BEN),
            embassy.slack.envelope(by_hand),
            embassy.slack.envelope(mention),
        )
        embassy.clock.now += 61
        later = embassy.slack.posted(f"<@{BOT}> do that too", user=BEN, thread_ts=question["thread_ts"])
        await hears(embassy, role, embassy.slack.envelope(later))
    assert answers(embassy) == [(TASK, "red", ANN)]
    assert [event["payload"]["text"] for event in embassy.events() if "mention" in event["type"]] == ["do that too"]
    told = [(whisper["user"], whisper["text"]) for whisper in embassy.slack.whispers]
    assert told == [(BEN, "This question is already closed.")] * 2
    assert len(embassy.journal("message.human_response")) == 1


async def test_an_answer_to_a_question_that_was_answered_elsewhere_is_told_so(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        question = await asked(embassy, role, "red")
        await embassy.event(f"evt-console-response-{TASK}-1")
        button = embassy.slack.press(question, 0)
        embassy.clock.now += 61
        await role.tick()
        assert embassy.state("awaiting-responses") == {}
        await hears(embassy, role, button)
    assert answers(embassy) == []
    assert [whisper["user"] for whisper in embassy.slack.whispers] == [ANN]


async def test_who_is_not_on_the_list_is_not_heard(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        question = await asked(embassy, role, "red")
        await hears(
            embassy,
            role,
            embassy.slack.press(question, 0, EVE),
            embassy.slack.envelope(embassy.slack.posted("red", user=EVE, thread_ts=question["thread_ts"])),
            embassy.slack.envelope(embassy.slack.posted("do it", user=EVE, channel=DIRECT)),
            embassy.slack.envelope(embassy.slack.posted(f"<@{BOT}> do it", user=EVE)),
        )
        assert role.report()["slack"]["refused"] == 4
    assert [event for event in embassy.events() if event["source"] == "slack"] == []
    assert embassy.state("awaiting-responses").keys() == {TASK}
    (whisper,) = embassy.slack.whispers
    assert EVE in whisper["text"]
    replies = [post for post in embassy.slack.posts if f"<@{EVE}>" in post["text"]]
    assert [post["thread_ts"] for post in replies] == [question["thread_ts"]], "one polite answer, in the thread"
    assert "slack.users" in replies[0]["text"]


async def test_without_a_list_nobody_is_heard_and_with_a_star_everybody(tmp_path: Path) -> None:
    for users, heard in (([], 0), (["*"], 1)):
        async with Embassy(tmp_path / str(heard), users=users).open() as embassy, embassy.sent() as role:
            await hears(embassy, role, embassy.slack.envelope(embassy.slack.posted("hello", channel=DIRECT)))
            assert len(embassy.events()) == heard


async def test_what_bots_say_what_changes_and_what_makes_no_sense_is_nothing_to_us(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        event = embassy.slack.posted("hello", channel=DIRECT)
        odd: list[Any] = [
            {**event, "bot_id": "B0OTHER"},
            {**event, "user": BOT},
            {**event, "subtype": "message_changed", "message": event},
            {**event, "subtype": "channel_join"},
            {**event, "user": None},
            {**event, "ts": 5},
            {"type": "reaction_added", "user": ANN},
            {},
        ]
        strange = [{"envelope_id": "1", "type": "events_api", "payload": []}, {"envelope_id": "2", "type": "odd"}]
        strange.append({"envelope_id": "../../3", "type": "interactive", "payload": {"type": "block_actions"}})
        await hears(embassy, role, *map(embassy.slack.envelope, odd), *strange)
    assert embassy.events() == []
    assert embassy.inbox() == []


async def test_nobody_takes_it_up_and_the_person_is_told(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        event = embassy.slack.posted("hello", channel=DIRECT)
        await hears(embassy, role, embassy.slack.envelope(event))
        (delivery,) = await embassy.services.bus.claim("events", worker="king")
        line = {"event_id": delivery.event_id, "event_type": "slack.dm.received", "reason": NOBODY_SUBSCRIBES}
        with embassy.home.journal.open("a") as file:
            entry = {"ts": "2026-02-07T12:00:00.000Z", "type": "event.discarded", "actor": "king", "data": line}
            file.write(json.dumps(entry) + "\n")
        await embassy.services.bus.settle(done=[delivery])
        embassy.clock.now += 61
        await role.tick()
    assert embassy.slack.reactions(event["ts"]) == set()
    said = embassy.slack.whispers[0]["text"]
    assert "no general subscribes to `slack.dm.received`" in said
    assert "kingdom general install gen-slack" in said
    assert embassy.state("received") == {}


async def test_the_envoy_is_woken_by_what_it_hears(embassy: Embassy) -> None:
    role, woken = embassy.envoy(), asyncio.Event()
    undo = role.subscribe(woken.set)
    try:
        await connected(embassy)
        woken.clear()
        await embassy.slack.delivered(embassy.slack.envelope(embassy.slack.posted("hello", channel=CHANNEL)))
        assert woken.is_set()
    finally:
        undo()
        await role.stop()


async def test_the_envoy_speaks_korean_where_the_court_does(tmp_path: Path) -> None:
    async with Embassy(tmp_path, locale="ko").open() as embassy, embassy.sent() as role:
        question = await asked(embassy, role, "빨강")
        assert "답글" in question["blocks"][-1]["elements"][0]["text"]
        await hears(embassy, role, embassy.slack.press(question, 0))
    assert question["text"].endswith(f"<@{ANN}> 님의 답: 빨강")


async def test_a_rule_of_trust_lets_somebody_in_whom_the_list_does_not_name(embassy: Embassy) -> None:
    embassy.home.config.mkdir(exist_ok=True)
    file = embassy.home.config / "trust.yaml"
    file.write_text(f"rules: [{{source: slack, users: [{EVE}], channels: [{DIRECT}], tier: trusted}}]\n")
    async with embassy.sent() as role:
        let_in = embassy.slack.posted("please", user=EVE, channel=DIRECT)
        elsewhere = embassy.slack.posted(f"<@{BOT}> please", user=EVE, channel=CHANNEL)
        still = embassy.slack.posted("please", user=ANN, channel=DIRECT)  # by the list
        for event in (let_in, elsewhere, still):
            await hears(embassy, role, embassy.slack.envelope(event))
    assert {event["payload"]["ts"] for event in embassy.events()} == {let_in["ts"], still["ts"]}


async def test_while_nobody_can_say_who_may_be_heard_what_was_said_waits(embassy: Embassy) -> None:
    embassy.home.config.mkdir(exist_ok=True)
    file = embassy.home.config / "trust.yaml"
    file.write_text("rules: [\n")
    async with embassy.sent() as role:
        event = embassy.slack.posted("please", channel=DIRECT)
        await hears(embassy, role, embassy.slack.envelope(event))
        assert embassy.events() == []
        assert len(embassy.inbox()) == 1
        assert "trust.yaml:" in role.report()["slack"]["problem"]
        file.write_text("rules: []\n")
        await role.tick()
    assert [one["payload"]["ts"] for one in embassy.events()] == [event["ts"]]
    assert embassy.inbox() == []


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_people_are_named_as_people_know_them(embassy: Embassy) -> None:
    async with embassy.sent() as role:
        for _ in range(2):
            await hears(embassy, role, embassy.slack.envelope(embassy.slack.posted(f"<@{BOT}> ask <@{BEN}>")))
        await embassy.tell(1, "human_input_request", "red or blue?")
        await role.tick()
        thread = embassy.state("awaiting-responses")[TASK]["thread_ts"]
        await hears(embassy, role, embassy.slack.envelope(embassy.slack.posted("red", BEN, thread_ts=thread)))
    answer, *asked = sorted(embassy.events(), key=lambda one: str(one["type"]))
    assert [one["payload"]["text"] for one in asked] == ["ask @ben"] * 2
    assert {(one["payload"]["user"], one["payload"]["user_name"]) for one in asked} == {(ANN, "ann")}
    assert (answer["payload"]["user"], answer["payload"]["user_name"]) == (BEN, "ben")
    assert len(embassy.slack.called("users.info")) == 2, "each is asked for once"
    (shown,) = answers_in(await all_documents(embassy.services)).values()
    assert shown.user == "ben"


async def test_without_the_scope_for_names_ids_are_shown_and_slack_is_not_asked_each_time(embassy: Embassy) -> None:
    embassy.slack.fail("users.info", "refuse", times=9, error="missing_scope")
    async with embassy.sent() as role:
        for _ in range(3):
            await hears(embassy, role, embassy.slack.envelope(embassy.slack.posted(f"<@{BOT}> ask <@{BEN}>")))
    assert {one["payload"]["text"] for one in embassy.events()} == {f"ask @{BEN}"}
    assert not any("user_name" in one["payload"] for one in embassy.events())
    assert len(embassy.slack.called("users.info")) == 1


async def test_an_alert_of_a_bot_is_taken_along_and_one_who_is_not_known_does_not_hide_other_names(
    embassy: Embassy,
) -> None:
    async with embassy.sent() as role:
        alert = embassy.slack.posted("IndexError in <https://x.example|parse>", "U0SENTRY")
        embassy.slack.posts[-1]["bot_id"] = "B0SENTRY"
        mention = embassy.slack.posted(f"<@{BOT}> fix this", thread_ts=alert["ts"])
        await hears(embassy, role, embassy.slack.envelope(mention))
        embassy.slack.fail("conversations.replies", "refuse", error="missing_scope")
        other = embassy.slack.posted("The door is stuck.", BEN)
        await hears(
            embassy, role, embassy.slack.envelope(embassy.slack.posted(f"<@{BOT}> why?", thread_ts=other["ts"]))
        )
    first, second = (one["payload"] for one in embassy.events())
    assert first["thread"] == [{"user": "U0SENTRY", "text": "IndexError in https://x.example"}]
    assert (first["user_name"], second["user_name"]) == ("ann", "ann")
    assert "thread" not in second, "what cannot be read does not stop the request"
