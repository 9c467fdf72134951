"""Commands that are imported when somebody calls them.

Making a command of a function costs a millisecond, importing its module another one, and there are many: without this,
``kingdom --help`` would take longer for each of them. The root knows only names, places and the words for its help.
"""

from __future__ import annotations

import importlib
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class CommandSpec(NamedTuple):
    """A command of the root: its name, its function or group as ``module:attribute``, the first words of its help."""

    name: str
    where: str
    help: str


COMMANDS: Final = (
    CommandSpec(
        "init",
        "init:init",
        "Make a folder the home of a court: folders, queues, configuration, generals to begin with.",
    ),
    CommandSpec("up", "court.up:up", "Start the court, a process for each role, and start again what dies."),
    CommandSpec("down", "court.down:down", "Stop the court: all roles, in their order."),
    CommandSpec(
        "status",
        "court.status:status",
        "Show who runs, what waits and why, which soldiers work, who is asked, and what went wrong lately.",
    ),
    CommandSpec("emit", "court.emit:emit", "Put an event into the court."),
    CommandSpec("answer", "court.answer:answer", "Answer the question of a task, so that its work goes on."),
    CommandSpec(
        "trace",
        "court.trace:trace",
        "Tell the whole story of an event, a task or a message, in time order, from every file that knows of it.",
    ),
    CommandSpec("role", "court.role:role", "Run one role in the foreground, until it is interrupted."),
    CommandSpec(
        "doctor",
        "court.doctor:doctor",
        "Check the home, its configuration, the generals, their engines, git, the disk, the queues and the processes.",
    ),
    CommandSpec(
        "metrics", "court.metrics:metrics", "Print the metrics of the court as Prometheus reads them, or serve them."
    ),
    CommandSpec("service", "court.service:service", "Print a unit for systemd that keeps the court up."),
    CommandSpec(
        "top",
        "top:top",
        "Watch a court on a full screen: roles, queues, soldiers and what they say, questions, cost and the journal.",
    ),
    CommandSpec("web", "web:web", "Serve the dashboard, the API and live events, until interrupted."),
    CommandSpec("logs", "logs:logs", "Show the journal: what the roles of a court did."),
    CommandSpec("stats", "stats:stats", "Show how many tasks there were, how they ended and how long they took."),
    CommandSpec(
        "report",
        "report:report",
        "Show the daily report: the one that was sent, or one made from the journal as far as it is still there.",
    ),
    CommandSpec("clean", "clean:clean", "Remove what is older than config/chamberlain.yaml says it is kept."),
    CommandSpec("demo", "demo:demo", "See a court at work: events become tasks, soldiers do them, a person is asked."),
    CommandSpec("bus", "bus:app", "Look after an event bus."),
    CommandSpec(
        "general",
        "general:app",
        "Look after the generals: who is there, whether they are in order, who comes and who goes.",
    ),
    CommandSpec("task", "court.task:app", "Look at the tasks of a court, and have them ended or done again."),
    CommandSpec("connect", "connect:app", "Check the tokens of GitHub, Jira and Slack, and what they can see."),
    CommandSpec(
        "workflow",
        "workflow:app",
        "Have agents work in steps, watch them, look at checkpoints, go back to one, change the plan, go on.",
    ),
    CommandSpec("template", "template:app", "Look after the templates: the plans workflows are made from."),
    CommandSpec("git", "git:app", "Look after the repositories that workflows work on."),
    CommandSpec("mcp", "mcp_servers:app", "Look after the MCP servers of workflows' agents; be one yourself (serve)."),
)


def load(place: CommandSpec) -> Any:
    """The function or the group of a command."""
    module, _, attribute = place.where.partition(":")
    return getattr(importlib.import_module(f"kingdom.cli.{module}"), attribute)


def add_command(app: typer.Typer, place: CommandSpec) -> None:
    """Make a command part of an app, now."""
    found = load(place)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=place.name)
    else:
        app.command(place.name)(found)


def load_all(app: typer.Typer) -> typer.Typer:
    """Make all commands part of an app, for those who want to look through them."""
    for place in COMMANDS:
        add_command(app, place)
    return app


class LazyCommand(TyperCommand):
    """Stands for a command until it is called."""

    def __init__(self, place: CommandSpec) -> None:
        super().__init__(place.name, help=place.help)
        self._place = place

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Begin to run it: from here on the real one goes on."""
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.callback()(_no_callback)
        add_command(alone, self._place)
        group: Any = get_command(alone)
        return group.commands[self._place.name].make_context(info_name, args, parent, **extra)


class RootGroup(TyperGroup):
    """The root of the command line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for place in COMMANDS:
            self.add_command(LazyCommand(place))


def _no_callback() -> None:
    """The callback of a group that has nothing to say."""
