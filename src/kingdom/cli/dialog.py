"""Questions to a person at the terminal, while the event loop goes on."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kingdom.cli import output

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

T = TypeVar("T")


async def ask(question: str, stop: asyncio.Event) -> str | None:
    """Return what a person types, without blanks around it; None at Ctrl-D, and when ``stop`` is set."""
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    click.echo(f"{output.sanitize(question)}: ", nl=False)
    # A terminal hands over whole lines: it can be read from when one is there.
    loop.add_reader(sys.stdin, typed.set)
    try:
        await until_stopped(typed.wait(), stop)
    finally:
        loop.remove_reader(sys.stdin)
    line = sys.stdin.readline() if typed.is_set() else ""
    if not line:
        output.say()  # the cursor stands behind the question
        return None
    return line.strip()


async def choose(question: str, choices: Sequence[str], default: str, stop: asyncio.Event) -> str:
    """Return which of some words a person types; the default for an empty line, Ctrl-D, and when ``stop`` is set."""
    while answer := await ask(f"{question} ({', '.join(choices)}) [{default}]", stop):
        if answer in choices:
            return answer
        output.say(f"{answer!r} is not one of {', '.join(choices)}")
    return default


async def until_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Return what some work returns; cancel it and return None when ``stop`` is set before it is done."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        unfinished = [task for task in (working, stopping) if not task.done()]
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)
