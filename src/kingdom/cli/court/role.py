"""``kingdom role``: run one role here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kingdom.cli.court.session import told
from kingdom.cli.home import HomeOption, find_home


def role(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="king, envoy, chamberlain, sentinel, or the name of a general.")
    ],
    home: HomeOption = None,
) -> None:
    """Run one role in the foreground, until it is interrupted.

    For a general on another machine, or to watch one at work. The envoy on a terminal takes answers that are typed.
    """
    import asyncio

    from kingdom.court.supervisor.serving import serve
    from kingdom.court.supervisor.speech import Speaker, speak_logs

    found = find_home(home)
    speak_logs(name, Speaker(sys.stderr), found)
    with told():
        asyncio.run(serve(found, name, foreground=sys.stdin.isatty() and sys.stdout.isatty()))
