"""``kingdom logs``: what happened in a court, and what happens now."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kingdom.cli import output
from kingdom.cli.court.session import told
from kingdom.cli.durations import parse_duration
from kingdom.cli.home import HomeOption, find_home

if TYPE_CHECKING:
    from pathlib import Path

    from rich.text import Text

    from kingdom.court.home import Home
    from kingdom.journal import Cursor, Entry, Problem, Reader

_STYLES: Final = {
    "event": "cyan",
    "task": "blue",
    "soldier": "magenta",
    "system": "yellow",
    "recovery": "green",
    "message": "white",
}
_BAD: Final = ("failed", "timeout", "killed", "missed", "orphaned", "warning", "discarded")


def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens from now on.")] = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Only events of this type: task.failed, or task.* for all."),
    ] = None,
    actors: Annotated[
        list[str] | None, typer.Option("--actor", "-a", metavar="ROLE", help="Only events of this role.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Only events of this task.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="From a time on: 2h, 3d, or 2026-02-07T10:00.", show_default=False
        ),
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            metavar="N",
            help="The last N only; 50 when --since is not given.",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print each event as it is written, a JSON line.")] = False,
) -> None:
    """Show the journal: what the roles of a court did. Options of one kind add up, those of several narrow down."""
    from kingdom.journal import Reader

    found = find_home(home)
    start = None if since is None else _moment(since, found)
    wanted = _filter(types or [], actors or [], task, start)
    show = _printer(json)
    most = 50 if lines is None and since is None else lines
    with told(), Reader(found.journal, cursor=_beginning(found.journal, start), report=_report) as reader:
        for entry in _last(filter(wanted, reader.read()), most):
            show(entry)
        if follow:
            _follow(reader, wanted, show)


def _follow(reader: Reader, wanted: Callable[[Entry], bool], show: Callable[[Entry], None]) -> None:
    import asyncio

    async def run() -> None:
        async for entry in reader.follow():
            if wanted(entry):
                show(entry)

    asyncio.run(run())


def _moment(text: str, home: Home) -> float:
    """``2h`` ago, or a time; one without a zone is in the court's."""
    import time
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from kingdom.court.config.system import load_system

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return time.time() - parse_duration(text)
        except typer.BadParameter:
            raise output.misuse(f"--since {text!r} is no time: write 30m, 2h, 7d, or 2026-02-07T10:00") from None
    if moment.tzinfo is None:
        with told():
            moment = moment.replace(tzinfo=ZoneInfo(load_system(home).timezone))
    return moment.timestamp()


def _beginning(journal: Path, start: float | None) -> Cursor:
    """Where to begin reading: behind the closed files that end before ``start``; else at the last closed one."""
    from kingdom.journal import Cursor
    from kingdom.journal.splits import list_splits

    try:
        splits = list_splits(journal)
    except OSError:
        return Cursor()
    if start is None:
        skipped = list(splits[:-1])
    else:
        skipped = []
        for split in splits:
            with contextlib.suppress(OSError):
                if journal.with_name(split.name).stat().st_mtime < start:
                    skipped.append(split)
                    continue
            break
    return Cursor(after=skipped[-1].name) if skipped else Cursor()


def _filter(types: list[str], actors: list[str], task: str | None, start: float | None) -> Callable[[Entry], bool]:
    from fnmatch import fnmatchcase

    def wanted(entry: Entry) -> bool:
        if types and not any(fnmatchcase(entry.type, pattern) for pattern in types):
            return False
        if actors and entry.actor not in actors:
            return False
        if task is not None and task not in (entry.fields.get("task_id"), entry.fields.get("original_task_id")):
            return False
        return start is None or entry.at.timestamp() >= start

    return wanted


def _last(entries: Iterable[Entry], most: int | None) -> Iterable[Entry]:
    return entries if most is None else deque(entries, maxlen=most)


def _printer(as_json: bool) -> Callable[[Entry], None]:
    if as_json:
        return lambda entry: print(entry.to_json(), flush=True)  # noqa: T201
    console = output.console()
    return lambda entry: console.print(_line(entry), soft_wrap=True)


def _line(entry: Entry) -> Text:
    from rich.text import Text

    category, _, action = entry.type.partition(".")
    style = "red" if any(word in action for word in _BAD) else _STYLES.get(category, "")
    data = " ".join(f"{key}={output.clean(_shown(value))}" for key, value in entry.fields.items())
    when = entry.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return Text.assemble(
        (when, "dim"), " ", (f"{output.clean(entry.type):<26}", style), f" {output.clean(entry.actor):<12} ", (data, "")
    )


def _shown(value: object) -> str:
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def _report(problem: Problem) -> None:
    print(output.clean(f"journal: {problem}"), file=sys.stderr)  # noqa: T201
