"""``kingdom up``: start a court and keep it running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.court.session import told
from kingdom.cli.home import HomeOption, find_home

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.home import Home
    from kingdom.court.supervisor.speech import Say


def up(
    inline: Annotated[bool, typer.Option("--inline", help="Run all roles in this one process.")] = False,
    daemon: Annotated[
        bool, typer.Option("--daemon", "-d", help="Go on in the background, and write to logs/supervisor.log.")
    ] = False,
    roles: Annotated[str | None, typer.Option(metavar="NAME,…", help="Only these roles.", show_default=False)] = None,
    home: HomeOption = None,
) -> None:
    """Start the court, a process for each role, and start again what dies. Ctrl-C or `kingdom down` stops it.

    A general that is installed meanwhile is started, one that is removed is stopped, one whose manifest changes is
    started anew. Soldiers outlive a stop: their generals take them over again when the court is next up.
    """
    from kingdom.court.config.system import load_system
    from kingdom.court.supervisor.record import running
    from kingdom.court.supervisor.speech import Speaker, speak_logs

    court = find_home(home)
    with told():
        load_system(court).queue_url(court)
        if (record := running(court)) is not None:
            raise output.Failure(
                "ALREADY_RUNNING",
                f"the court in {court.root} is up (pid {record.supervisor.pid}): "
                "kingdom status shows it, kingdom down stops it",
            )
        only = [name.strip() for name in roles.split(",") if name.strip()] if roles is not None else None
        say = Speaker()
        speak_logs("supervisor", say, court)
        if daemon:
            _in_background(court, only, inline=inline)
        else:
            _run(court, say, only, inline=inline, follow=True)


def _in_background(court: Home, only: list[str] | None, *, inline: bool) -> None:
    from kingdom.court.supervisor.daemon import detach
    from kingdom.court.supervisor.speech import Speaker, speak_logs

    log = court.logs / "supervisor.log"

    def run(ready: Callable[[], None]) -> None:
        say = Speaker()
        speak_logs("supervisor", say, court)
        _run(court, say, only, inline=inline, follow=False, ready=ready)

    pid = detach(log, run)
    output.say(f"the court is up (pid {pid}): kingdom status shows it, kingdom down stops it")
    _tell_of_dashboard(court, only)


def _tell_of_dashboard(court: Home, only: list[str] | None) -> None:
    from kingdom.court.bootstrap import available_roles
    from kingdom.court.config.system import load_system
    from kingdom.web.record import url_of

    web = load_system(court).web
    if web.port and "web" in available_roles(court) and (only is None or "web" in only):
        output.say(
            f"the dashboard is at {url_of(web.host, web.port)} in a moment: kingdom web --link logs a browser in"
        )


def _run(
    court: Home,
    say: Say,
    only: list[str] | None,
    *,
    inline: bool,
    follow: bool,
    ready: Callable[[], None] = lambda: None,
) -> None:
    from kingdom.court.supervisor.speech import JournalFollower
    from kingdom.court.system_log import recorded

    meanwhile = JournalFollower(court, say) if follow else None
    say = recorded(court, say)
    if inline:
        import asyncio

        from kingdom.court.supervisor.inline import run_inline

        asyncio.run(run_inline(court, say, only=only, meanwhile=meanwhile, ready=ready))
    else:
        from kingdom.court.supervisor.supervisor import Supervisor

        Supervisor(court, say, only=only, meanwhile=meanwhile).run(ready)
