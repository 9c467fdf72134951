"""From ``--home`` to an open court for the length of one command."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from kingdom.cli.home import errors_told, find_home
from kingdom.cli.output import Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from kingdom.court.loop import Services

T = TypeVar("T")


def in_court(named: Path | None, action: Callable[[Services], Awaitable[T]]) -> T:
    """Run ``action`` with the services of a court, whether it is up or not."""
    import asyncio

    from kingdom.court.bootstrap import open_services

    home = find_home(named)

    async def run() -> T:
        async with open_services(home) as services:
            return await action(services)

    with told():
        return asyncio.run(run())


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turn what can be wrong in a court, its bus and its journal into a :class:`Failure`."""
    from kingdom.journal import JournalError

    with errors_told():
        try:
            yield
        except JournalError as error:
            raise Failure("JOURNAL", str(error)) from error


def user_name() -> str:
    """Who sits here."""
    from kingdom.court import users

    return users.user_name()
