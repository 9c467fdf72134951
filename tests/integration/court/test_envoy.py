"""The envoy: every message is said once, what cannot be said is tried again and then put aside."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import RetryPolicy
from kingdom.court.bootstrap import open_services
from kingdom.court.envoy.console import ConsoleSender, format_message
from kingdom.court.envoy.role import Envoy
from kingdom.court.home import MARKER, Home
from kingdom.court.loop import Services, run_role
from kingdom.court.models import Message
from kingdom.court.queues import put_documents
from kingdom.journal import rotate_to_old
from tests.support.command import Background


class Died(BaseException):
    """The process ends here."""


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    home = Home(tmp_path)
    (home.root / MARKER).parent.mkdir()
    (home.root / MARKER).write_text("name: test\n")
    async with open_services(home) as opened:
        yield opened


def message(number: int, content: str = "hello", **more: Any) -> Message:
    return Message(
        id=f"msg-20260207-{number:03d}",
        type=more.pop("type", "report"),
        content=content,
        context={"task_id": "task-20260207-001", **more},
        created_at="2026-02-07T12:00:00Z",  # type: ignore[arg-type]
    )


def envoy(services: Services) -> Envoy:
    return Envoy(services, ConsoleSender(services.home, shown=False))


def said(services: Services) -> str:
    path = services.home.logs / "console.log"
    return path.read_text() if path.exists() else ""


def journalled(services: Services) -> list[str]:
    path = services.home.journal
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["data"]["msg_id"] for line in lines]


def names(services: Services, state: str) -> list[str]:
    return sorted(path.stem for path in (services.home.queue / "messages" / state).glob("*.json"))


async def test_a_message_that_a_program_of_a_general_puts_there_is_sent(services: Services) -> None:
    document = {
        "id": "msg-20260207-900",
        "type": "notification",
        "content": "the build of gen-pr is slow today",
        "context": {"general": "gen-pr"},
        "created_at": "2026-02-07T12:00:00Z",
        "status": "pending",
    }
    folder = services.home.queue / "messages" / "pending"
    (folder / ".tmp-by-hand").write_text(json.dumps(document))
    (folder / ".tmp-by-hand").rename(folder / "msg-20260207-900.json")
    one = envoy(services)
    await one.start()
    await one.tick()
    await one.stop()
    assert "the build of gen-pr is slow today" in said(services)
    assert (services.home.queue / "messages" / "sent" / "msg-20260207-900.json").exists()


async def test_messages_are_said_written_down_and_settled(services: Services) -> None:
    await put_documents(services.bus, [message(number) for number in range(1, 31)])
    await envoy(services).tick()
    assert said(services).count("    hello\n") == 30
    assert len(journalled(services)) == len(names(services, "sent")) == 30
    assert names(services, "pending") == []


async def test_the_last_report_is_recorded_without_slack_too(services: Services) -> None:
    await put_documents(services.bus, [message(1), message(2, type="notification"), message(3)])
    await envoy(services).tick()
    recorded = json.loads((services.home.role("envoy") / "report-sent.json").read_text())
    assert recorded["msg_id"] == "msg-20260207-003"
    assert recorded.keys() == {"date", "msg_id", "sent_at"}


async def test_a_new_message_wakes_the_envoy(services: Services) -> None:
    stop = asyncio.Event()
    role = envoy(services)
    role.interval = 3600.0
    running = asyncio.create_task(run_role(role, services, stop))
    async with asyncio.timeout(30):
        while not services.home.heartbeat("envoy").exists():
            await asyncio.sleep(0.01)
        await put_documents(services.bus, [message(1)])
        while not names(services, "sent"):
            await asyncio.sleep(0.01)
    stop.set()
    await running
    assert json.loads(services.home.heartbeat("envoy").read_text())["sent"] in (0, 1)


@pytest.mark.parametrize("instant", ["before it is said", "before it is written down", "before it is settled"])
async def test_killed_at_any_instant_a_message_is_said_once(
    services: Services, instant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_documents(services.bus, [message(1)])
    first = envoy(services)

    def die(*_: Any, **__: Any) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        if instant == "before it is said":
            patch.setattr(ConsoleSender, "send", die)
        elif instant == "before it is written down":
            patch.setattr(services.journal, "emit", die)
        else:
            patch.setattr(services.bus, "settle", die)
        with pytest.raises(Died):
            await first.tick()
    second = envoy(services)
    await second.start()
    await second.tick()
    assert said(services).count("    hello\n") == 1
    assert journalled(services) == names(services, "sent") == ["msg-20260207-001"]


async def test_a_message_that_was_said_before_the_log_was_rotated_is_not_said_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_documents(services.bus, [message(1)])

    def die(*_: Any, **__: Any) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(services.bus, "settle", die)
        with pytest.raises(Died):
            await envoy(services).tick()
    rotate_to_old(services.home.logs / "console.log", max_bytes=1)
    second = envoy(services)
    await second.start()
    await second.tick()
    assert said(services) == ""
    assert names(services, "sent") == ["msg-20260207-001"]
    await put_documents(services.bus, [message(2)])
    await second.tick()
    assert said(services).endswith("-- msg-20260207-002\n")


async def test_a_message_that_was_torn_is_said_again(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    await put_documents(services.bus, [message(1), message(2)])
    claimed = await services.bus.claim("messages", worker="envoy", limit=2)
    assert len(claimed) == 2
    whole = format_message(message(1))
    services.home.logs.mkdir(exist_ok=True)
    (services.home.logs / "console.log").write_text(whole[: len(whole) // 2] + "\n")
    second = envoy(services)
    await second.start()
    await second.tick()
    assert said(services).count("-- msg-20260207-001\n") == 1
    assert names(services, "sent") == ["msg-20260207-001", "msg-20260207-002"]


async def test_what_cannot_be_said_is_tried_again_then_lies_in_failed_and_the_others_go_out(services: Services) -> None:
    class Hoarse(ConsoleSender):
        async def send(self, message: Message) -> None:
            if message.id.endswith("001"):
                raise ConnectionError("nobody is there")
            await super().send(message)

    role = Envoy(services, Hoarse(services.home, shown=False), retries=RetryPolicy(base=0.01, jitter=0, max_attempts=3))
    await put_documents(services.bus, [message(1), message(2)])
    async with asyncio.timeout(30):
        while not names(services, "failed"):
            await role.tick()
            await asyncio.sleep(0.01)
    assert (names(services, "sent"), names(services, "failed")) == (["msg-20260207-002"], ["msg-20260207-001"])
    (letter,) = await services.bus.dead("messages")
    assert (letter.attempts, letter.error_message) == (3, "ConnectionError: nobody is there")
    since = role.report()["failing_since"]
    assert role.report() == {"sent": 1, "failed": 1, "problem": "nobody is there", "failing_since": since}
    await put_documents(services.bus, [message(3)])
    await role.tick()
    assert role.report() == {"sent": 2, "failed": 1}


async def test_a_message_that_breaks_the_schema_is_put_aside(services: Services) -> None:
    path = services.home.queue / "messages/pending/msg-20260207-009.json"
    path.write_text(json.dumps({"id": "msg-20260207-009", "type": "whisper", "status": "pending"}))
    await put_documents(services.bus, [message(1)])
    await envoy(services).tick()
    assert names(services, "sent") == ["msg-20260207-001"]
    (letter,) = await services.bus.dead("messages")
    assert "type" in (letter.error_message or "")


def test_what_others_wrote_cannot_look_like_the_end_of_a_message_or_steer_a_terminal() -> None:
    text = format_message(message(1, "a\n-- msg-20260207-002\n\x1b[2J\u2028-- msg-20260207-003"))
    assert "\n-- msg-20260207-002\n" not in text
    assert "\n-- msg-20260207-003\n" not in text
    assert "\x1b" not in text
    assert text.endswith("\n-- msg-20260207-001\n")


async def test_answers_can_be_typed_in_front_of_the_envoy(services: Services) -> None:
    await put_documents(services.bus, [message(1, "Which one?", type="human_input_request", choices=["a", "b"])])
    master, slave = pty.openpty()
    process = Background(slave, "role", "envoy", "--home", str(services.home.root))
    os.close(slave)
    try:
        screen = await asyncio.to_thread(_read_until, master, "-- msg-20260207-001")
        assert "choices: a | b" in screen
        assert "kingdom answer task-20260207-001" in screen
        os.write(master, b"what?\ntask-20260207-001 the second one\n")
        screen = await asyncio.to_thread(_read_until, master, "sent as evt-")
        assert "type the task id and the answer" in screen
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 30)
        os.close(master)
    assert process.returncode == 0
    (record,) = await services.bus.peek("events")
    assert record.envelope.type == "console.human_response"
    payload = record.envelope.payload["payload"]
    assert (payload["task_id"], payload["text"]) == ("task-20260207-001", "the second one")


def _read_until(master: int, wanted: str) -> str:
    screen = ""
    while wanted not in screen:
        screen += os.read(master, 65536).decode(errors="replace")
    return screen
