"""Events and agent output as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

    from kingdom.workflow.listening import Said
    from kingdom.workflow.ports import SeenEvent

_STYLES: Final = {"bad": "red", "good": "green", "plain": "cyan"}


def event_line(event: SeenEvent, names: Mapping[str, str]) -> Text:
    """One line: when, which number, what, and about what; ``names`` are those of works and tasks, by id."""
    from rich.text import Text

    from kingdom.workflow.telling import about, news

    return Text.assemble(
        (f"{event.occurred_at.astimezone():%H:%M:%S}", "dim"),
        f" {event.sequence:>5} ",
        (f"{output.clean(event.type):<24} ", _STYLES[news(event)]),
        output.clean(about(event, names)),
    )


def said_line(said: Said) -> list[Text]:
    """What an agent said, with whose work it is on before each line."""
    from rich.text import Text

    who = output.clean(f"{said.work}/{said.task} │ ")
    return [Text.assemble((who, "magenta"), output.clean(line)) for line in said.text.splitlines() if line.strip()]
