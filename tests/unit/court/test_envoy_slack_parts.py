"""The parts of the envoy in Slack that need no Slack: texts, rate limit, parsed envelopes, configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.base.yamlfile import YamlProblem, parse_yaml
from kingdom.court.bootstrap import make_role, open_services
from kingdom.court.envoy.config import EnvoyConfig, SlackSection, load_envoy, slack_tokens
from kingdom.court.envoy.console import ConsoleSender
from kingdom.court.envoy.port import MultiSender
from kingdom.court.envoy.slack.context import ChannelRateLimiter
from kingdom.court.envoy.slack.listener import SlackInbox
from kingdom.court.envoy.slack.payloads import ButtonPress, PostedMessage, parse_envelope
from kingdom.court.envoy.slack.posts import post_parts
from kingdom.court.envoy.slack.text import escape, mentions_user, split_text, to_plain_text, truncate
from kingdom.court.errors import InvalidConfig
from kingdom.court.home import MARKER, Home
from kingdom.court.models import Message
from tests.support.kings import Clock
from tests.support.slack_blocks import block_error

TEMPLATE = Path(__file__).parents[3] / "src/kingdom/court/templates/envoy.yaml"


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.text())
def test_no_text_of_others_holds_anything_that_slack_would_obey(text: str) -> None:
    escaped = escape(text)
    assert "<" not in escaped
    assert ">" not in escaped


@given(st.text(alphabet=st.characters(exclude_categories=("C", "Z"))))
def test_what_was_escaped_is_read_back_as_it_was(text: str) -> None:
    assert to_plain_text(escape(text)) == text


@given(st.text(alphabet="&<a\n", max_size=200), st.integers(1, 60))
def test_a_text_is_cut_and_divided_without_breaking_a_character(text: str, size: int) -> None:
    escaped = escape(text)
    for part in [truncate(escaped, size + 5, "…").removesuffix("…"), *split_text(escaped, size + 5)]:
        assert escape(to_plain_text(part)).replace("\n", "") == part.strip().replace("\n", "")
        assert len(part) <= size + 5
    assert "".join(split_text(escaped, size + 5)).replace("\n", "") == escaped.replace("\n", "")


def test_the_mention_of_the_bot_is_taken_out_and_other_names_are_kept() -> None:
    text = "<@U1|kingdom> ask <@U2|ann> or <@U3> in <#C1|general> see <https://x.example/?a=1&amp;b=2|here>"
    assert to_plain_text(text, "U1") == "ask @ann or @U3 in @general see https://x.example/?a=1&b=2"
    assert mentions_user(text, "U1")
    assert not mentions_user("U1 <@U12>", "U1")
    assert not mentions_user("<@U1>", None)


def question(choices: list[Any]) -> Message:
    return Message(
        id="msg-20260207-001",
        type="human_input_request",
        content="x" * 60_000,
        context={"task_id": "task-20260207-001", "choices": choices},
        created_at="2026-02-07T12:00:00Z",  # type: ignore[arg-type]
    )


def test_a_question_keeps_within_the_limits_of_slack() -> None:
    message = question([f"choice {number} " + "y" * 100 for number in range(40)])
    parts = post_parts(message, "ko")
    assert [block_error(part.blocks) for part in parts] == [None] * len(parts)
    assert all(len(part.text) <= 4000 for part in parts)
    (actions,) = [block for part in parts for block in part.blocks or () if block["type"] == "actions"]
    assert actions in (parts[0].blocks or ())
    assert len(actions["elements"]) == 25
    assert len({button["action_id"] for button in actions["elements"]}) == 25
    assert not any(block["type"] == "actions" for part in post_parts(question([]), "en") for block in part.blocks or ())


# ── rate limit ────────────────────────────────────────────────────────────────────────────────────────────────


def test_three_at_once_then_one_a_second_for_each_channel_on_its_own() -> None:
    clock = Clock()
    limiter = ChannelRateLimiter(1.0, clock)
    assert [limiter.acquire("a") for _ in range(4)] == [0, 0, 0, 1.0]
    assert limiter.acquire("b") == 0
    clock.now += 0.25
    assert limiter.acquire("a") == 0.75
    clock.now += 0.75
    assert [limiter.acquire("a"), limiter.acquire("a")] == [0, 1.0]
    clock.now -= 3600  # a clock that is set back takes nothing away
    assert 0 < limiter.acquire("a") <= 1.0


def test_a_channel_that_is_closed_opens_again() -> None:
    clock = Clock()
    limiter = ChannelRateLimiter(1.0, clock)
    limiter.block("a", 30)
    limiter.block("a", 10)
    assert (limiter.acquire("a"), limiter.acquire("b")) == (30, 0)
    clock.now += 30
    assert limiter.acquire("a") == 0


# ── envelopes ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_mention_as_slack_publishes_it() -> None:
    event = {
        "type": "app_mention",
        "user": "U061F7AUR",
        "text": "<@U0LAN0Z89> is it everything a river should be?",
        "ts": "1515449522.000016",
        "channel": "C123ABC456",
        "event_ts": "1515449522000016",
    }
    payload = {
        "token": "none",
        "team_id": "T123ABC456",
        "api_app_id": "A123ABC456",
        "event": event,
        "type": "event_callback",
        "event_id": "Ev123ABC456",
        "event_time": 1515449522000016,
        "authed_users": ["U0LAN0Z89"],
    }
    posted = parse_envelope({"type": "events_api", "envelope_id": "1", "payload": payload}, "U0LAN0Z89")
    assert isinstance(posted, PostedMessage)
    assert posted.names == ("post-T123ABC456-C123ABC456-1515449522.000016", "event-Ev123ABC456")
    assert (posted.mention, posted.direct, posted.thread_ts) == (True, False, None)


@pytest.mark.parametrize("channel_type", ["im", "channel", "group", "mpim"])
def test_a_message_is_direct_only_where_nobody_else_is(channel_type: str) -> None:
    event = {"type": "message", "channel": "C1", "channel_type": channel_type, "user": "U1", "text": "hi", "ts": "1.1"}
    posted = parse_envelope({"type": "events_api", "payload": {"event": event, "team_id": "T1"}}, "U0")
    assert isinstance(posted, PostedMessage)
    assert posted.direct == (channel_type == "im")


def press(**changes: Any) -> dict[str, Any]:
    action = {
        "type": "button",
        "block_id": "kingdom_question:task-20260207-001",
        "action_id": "kingdom_answer1",
        "text": {"type": "plain_text", "text": "blue"},
        "value": "1",
        "action_ts": "1548426417.840180",
        **changes,
    }
    return {
        "type": "interactive",
        "envelope_id": "1",
        "payload": {
            "type": "block_actions",
            "team": {"id": "T1", "domain": "example"},
            "user": {"id": "U1", "username": "ann", "team_id": "T1"},
            "container": {"type": "message", "message_ts": "1548261231.000200", "channel_id": "C1"},
            "trigger_id": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
            "channel": {"id": "C1", "name": "general"},
            "message": {"bot_id": "B1", "type": "message", "text": "?", "user": "U0", "ts": "1548261231.000200"},
            "actions": [action],
        },
    }


def test_a_button_as_slack_sends_it() -> None:
    pressed = parse_envelope(press(), "U0")
    assert isinstance(pressed, ButtonPress)
    assert (pressed.task_id, pressed.choice, pressed.user) == ("task-20260207-001", 1, "U1")


@pytest.mark.parametrize(
    "changes",
    [{"block_id": "theirs"}, {"action_id": "kingdom_answer²"}, {"action_id": "x"}, {"action_ts": "../1"}],
    ids=str,
)
def test_the_buttons_of_others_are_nothing_to_us(changes: dict[str, Any]) -> None:
    assert parse_envelope(press(**changes), "U0") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "payload", "event", "actions", "user", "ts", "channel"]), inner)
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from(["events_api", "interactive"]))
def test_whatever_an_envelope_holds_it_can_be_looked_at(payload: Any, kind: str) -> None:
    assert parse_envelope(payload, "U0") is None
    assert parse_envelope({"type": kind, "payload": payload}, "U0") is None or isinstance(payload, dict)


def test_what_was_dealt_with_is_remembered_for_a_day(tmp_path: Path) -> None:
    clock = Clock()
    inbox = SlackInbox(Home(tmp_path), clock)
    inbox.prune()
    inbox.remember(["post-T1-C1-1.1", "event-Ev/1"])
    clock.now += 86400 - 1
    SlackInbox(Home(tmp_path), clock).prune()
    assert inbox.seen(["event-Ev/1"])
    assert inbox.seen(["unknown", "post-T1-C1-1.1"])
    clock.now += 3601
    inbox.prune()
    assert not inbox.seen(["post-T1-C1-1.1", "event-Ev/1"])


# ── configuration ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_template_is_valid_and_shows_the_defaults() -> None:
    text = TEMPLATE.read_text()
    assert parse_yaml(text, EnvoyConfig, "envoy.yaml") == EnvoyConfig()
    uncommented = "\n".join(line.removeprefix("# ") for line in text.splitlines()[4:])
    shown = parse_yaml(uncommented, EnvoyConfig, "envoy.yaml")
    assert shown.slack.model_copy(update={"enabled": None, "channel": ""}) == SlackSection()
    left_out = {"api_url"}
    assert {*SlackSection.model_fields} - left_out == shown.slack.model_fields_set


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("slack:\n  users: [ann]", "envoy.yaml:2: slack.users"),
        ("slack:\n  api_url: http://evil.example/", "must begin with https://"),
        ("slack:\n  bot_token_env: xoxb-1-2-3", "envoy.yaml:2"),
        ("slack:\n  chanel: x", "channel"),
        ("slack:\n  posts_per_second: 0", "slack.posts_per_second"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(YamlProblem) as told:
        parse_yaml(text, EnvoyConfig, "envoy.yaml")
    assert problem in str(told.value)


def test_slack_is_used_when_both_tokens_are_there_unless_the_file_says_otherwise() -> None:
    both = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": " xapp-1\n"}
    tokens = slack_tokens(SlackSection(), both)
    assert tokens is not None
    assert (tokens.bot, tokens.app) == ("xoxb-1", "xapp-1")
    assert "xoxb" not in repr(tokens)
    assert slack_tokens(SlackSection(enabled=False), both) is None
    assert slack_tokens(SlackSection(), {"SLACK_BOT_TOKEN": "x"}) is None
    with pytest.raises(InvalidConfig, match="SLACK_BOT_TOKEN, SLACK_APP_TOKEN"):
        slack_tokens(SlackSection(enabled=True), {})


async def test_the_envoy_of_a_court_speaks_where_it_is_configured_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    (home.root / MARKER).parent.mkdir()
    (home.root / MARKER).write_text("name: test\n")
    monkeypatch.delenv("SLACK_BOT_TOKEN", raising=False)
    async with open_services(home) as services:
        assert isinstance(make_role("envoy", services)._sender, ConsoleSender)  # type: ignore[attr-defined]
        monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
        monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-1")
        assert type(make_role("envoy", services)._sender).__name__ == "SlackSender"  # type: ignore[attr-defined]
        (home.config / "envoy.yaml").write_text("console: true\n")
        assert isinstance(make_role("envoy", services)._sender, MultiSender)  # type: ignore[attr-defined]
        (home.config / "envoy.yaml").write_text("slack: {enabled: maybe}\n")
        with pytest.raises(InvalidConfig, match=r"envoy\.yaml:1"):
            load_envoy(home)
