"""The console: messages go to ``logs/console.log`` and, on a terminal, to the screen; answers can be typed."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
from typing import TYPE_CHECKING, Final

from kingdom.court.commands import submit_answer
from kingdom.court.envoy.port import MessageSender, ReplyListener
from kingdom.court.models import Message, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.loop import Services

_CONTROL_CHARS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_URGENCY_MARKS: Final = {"normal": "", "high": "!", "urgent": "!!"}
_TAIL_BYTES: Final = 256 * 1024  # a message that was just sent is within this end of the log


class ConsoleSender(MessageSender):
    """Appends messages to the log, and looks them up there; with ``shown`` it also prints them."""

    def __init__(self, home: Home, *, shown: bool) -> None:
        self._path = home.logs / "console.log"
        self._shown = shown

    async def send(self, message: Message) -> None:
        """Write a head line and the content. Others wrote the content, so control characters are replaced."""
        text = format_message(message)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(text.encode(errors="replace"))
            file.flush()
            os.fsync(file.fileno())
        if self._shown:
            sys.stdout.write(text)
            sys.stdout.flush()

    async def was_sent(self, message_id: str) -> bool:
        """Return whether the message is in the log or in the rotated log."""
        last_line = f"\n-- {message_id}\n".encode()
        return any(
            last_line in _read_tail(path) for path in (self._path, self._path.with_name(f"{self._path.name}.old"))
        )


def _read_tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return file.read()
    except FileNotFoundError:
        return b""


def format_message(message: Message) -> str:
    """Return a message as lines of text. The last line names it, so an incomplete message does not count as sent.

    The content is indented, so nothing that others wrote can look like such a last line.
    """
    task_id = message.context.get("task_id")
    head = [timestamp(message.created_at.timestamp())[:19] + "Z", message.type, _URGENCY_MARKS[message.urgency]]
    lines = [" ".join(part for part in head if part), *message.content.splitlines()]
    if message.type == "human_input_request" and task_id:
        choices = message.context.get("choices")
        if isinstance(choices, list) and choices:
            lines.append("choices: " + " | ".join(str(choice) for choice in choices))
        lines.append(f'answer: kingdom answer {task_id} "…"')
    body = "\n    ".join(_CONTROL_CHARS.sub("\N{REPLACEMENT CHARACTER}", line) for line in lines)
    return f"{body}\n-- {message.id}\n"


class ConsoleListener(ReplyListener):
    """Reads answers that a person types: ``task-20260207-001 the answer``."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._typed: list[str] = []
        self._partial = ""  # an incomplete line

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Read lines from standard input, which must be a terminal."""
        loop = asyncio.get_running_loop()
        descriptor = sys.stdin.fileno()

        def read_lines() -> None:
            if typed := os.read(descriptor, 65536):
                *lines, self._partial = (self._partial + typed.decode(errors="replace")).split("\n")
                self._typed += [line.strip() for line in lines]
                wake()
            else:
                loop.remove_reader(descriptor)

        def undo() -> None:
            loop.remove_reader(descriptor)

        loop.add_reader(descriptor, read_lines)
        return undo

    async def process_received(self) -> None:
        while self._typed:
            line = self._typed.pop(0)
            task_id, _, text = line.partition(" ")
            if re.fullmatch(r"task-\d{8}-\d{3,}", task_id) and text.strip():
                event_id = await submit_answer(self._services, task_id, text.strip(), getpass.getuser())
                sys.stdout.write(f"sent as {event_id}\n")
            elif line:
                sys.stdout.write("to answer a question, type the task id and the answer: task-20260207-001 yes\n")
            sys.stdout.flush()
