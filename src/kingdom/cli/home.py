"""What the commands of a court share: which home is meant, and what becomes of the court's errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from kingdom.cli.output import Failure

if TYPE_CHECKING:
    from kingdom.court.home import Home

HomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="The home of the court. Else KINGDOM_HOME, else the one around the working folder.",
        show_default=False,
    ),
]


def find_home(named: Path | None) -> Home:
    """The home that is meant: the one named by ``--home``, or the one :meth:`Home.find` finds."""
    from kingdom.court.errors import HomeNotFound
    from kingdom.court.home import MARKER, Home

    with errors_told():
        if named is None:
            return Home.find()
        home = Home(named)
        if not home.exists:
            raise HomeNotFound(f"{home.root} is not the home of a court (no {MARKER} in it): kingdom init {named}")
        return home


@contextlib.contextmanager
def errors_told() -> Iterator[None]:
    """Errors of the court and of the bus become a :class:`Failure`."""
    from kingdom.bus import BusError
    from kingdom.cli.bus.session import failure_of
    from kingdom.court.errors import CourtError

    try:
        yield
    except CourtError as error:
        raise Failure(error.code, str(error)) from error
    except BusError as error:
        raise failure_of(error) from error
