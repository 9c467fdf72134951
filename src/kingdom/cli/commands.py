"""The commands of the root, each imported when it is called.

Importing a module and building a command take about a millisecond each. With all commands loaded, ``kingdom --help``
would be slow, so the root only knows names, locations and one line of help.
"""

from __future__ import annotations

import importlib
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from kingdom.cli.output import CommandError
from kingdom.cli.parsing import Group


class CommandSpec(NamedTuple):
    """A command of the root: its name, ``module:attribute`` of its command or group, the first sentence of its help.

    The sentence has at most 64 characters: a longer one would be cut in 80 columns.
    """

    name: str
    target: str
    help: str


SECTIONS: Final[dict[str, tuple[CommandSpec, ...]]] = {
    "Start here": (
        CommandSpec("demo", "demo:demo", "Show a court at work in a temporary folder."),
        CommandSpec("docs", "docs:docs", "Open the documentation in a browser."),
        CommandSpec("run", "workflow.run:run", "Have an agent do one thing in a git repository."),
        CommandSpec("init", "court.init:init", "Create the home of a court."),
        CommandSpec("up", "court.lifecycle:up", "Start the court and restart roles that die."),
        CommandSpec(
            "status",
            "court.inspection:status",
            "Show health, budget, alerts, roles, queues, soldiers, questions and problems.",
        ),
    ),
    "Court": (
        CommandSpec("down", "court.lifecycle:down", "Stop the court."),
        CommandSpec("emit", "court.tasks:emit", "Publish an event to the court."),
        CommandSpec("answer", "court.tasks:answer", "Answer the question of a task."),
        CommandSpec("task", "court.tasks:app", "Manage tasks: list, show, attach, cancel, retry, land."),
        CommandSpec("trace", "court.inspection:trace", "Show the history of an event, task, message, issue or ticket."),
        CommandSpec("logs", "court.records:logs", "Show the journal: what the roles of the court did."),
        CommandSpec("stats", "court.records:stats", "Show how many tasks ran and how they ended."),
        CommandSpec("report", "court.records:report", "Show the daily report."),
        CommandSpec("top", "top:top", "Watch the court on a full screen."),
        CommandSpec("general", "court.generals:app", "Manage generals: list, check, install, enable, disable, remove."),
        CommandSpec("connect", "court.connect:app", "Check the tokens of GitHub, Jira and Slack."),
    ),
    "Workflow": (
        CommandSpec("workflow", "workflow.group:app", "Run agents in steps, with checkpoints to go back to."),
        CommandSpec("template", "workflow.templates:app", "Manage templates: plans that workflows are created from."),
        CommandSpec("git", "workflow.sources:git_app", "Manage the repositories that workflows use."),
        CommandSpec("mcp", "workflow.sources:mcp_app", "Manage the MCP servers of agents, or serve the court as one."),
    ),
    "Bus": (CommandSpec("bus", "bus:app", "Inspect and operate an event bus."),),
    "Operate": (
        CommandSpec("doctor", "court.inspection:doctor", "Check the court and everything it needs."),
        CommandSpec("sandbox", "court.sandbox:app", "Prove the sandbox of agents, or look around in it."),
        CommandSpec("metrics", "court.inspection:metrics", "Print or serve the metrics of the court for Prometheus."),
        CommandSpec("web", "web:web", "Serve the dashboard, the API and live events."),
        CommandSpec("token", "tokens:app", "Manage access tokens of people: add, list, change, revoke."),
        CommandSpec("role", "court.lifecycle:role", "Run one role in the foreground."),
        CommandSpec("service", "court.lifecycle:service", "Print a systemd unit that keeps the court running."),
        CommandSpec("backup", "court.backups:backup", "Store a whole court in one file, also while it runs."),
        CommandSpec("restore", "court.backups:restore", "Restore a court from a backup."),
        CommandSpec("export", "court.erasure:export", "Export everything known about a person or a repository."),
        CommandSpec("forget", "court.erasure:forget", "Remove everything known about a person or a repository."),
        CommandSpec("move-to", "court.machines:move_to", "Move a court to a database, so that machines can join."),
        CommandSpec("join", "court.machines:join", "Add this machine to a court."),
        CommandSpec("leave", "court.machines:leave", "Take this machine out of its court."),
        CommandSpec("machines", "court.machines:app", "List the machines of a court, add one, or remove one."),
        CommandSpec("clean", "court.records:clean", "Remove files that are past their retention time."),
    ),
}
COMMANDS: Final = tuple(command for section in SECTIONS.values() for command in section)

# The extra of pyproject.toml that installs a third-party package, by the name under which the package is imported.
EXTRA_OF_PACKAGE: Final = {
    package: extra
    for extra, packages in {
        "kafka": "confluent_kafka",
        "postgres": "asyncpg",
        "court": "aiohttp cronsim jinja2 markdown_it orjson psutil pydantic rich slack_sdk textual yaml",
        "web": "authlib fastapi httpx joserfc mcp nicegui starlette uvicorn websockets",
        "psycopg": "psycopg",
        "sqlalchemy": "sqlalchemy",
    }.items()
    for package in packages.split()
}


def missing_package(error: ModuleNotFoundError) -> CommandError | None:
    """Return the error that names the extra to install, or None when the module belongs to no extra."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRA_OF_PACKAGE.get(package)
    if extra is None:
        return None
    from kingdom.base.installation import install_command

    return CommandError("NOT_INSTALLED", f"this command needs the package {package}: run {install_command(extra)}")


def load(spec: CommandSpec) -> click.Command:
    """Import a command or a group."""
    module, _, attribute = spec.target.partition(":")
    found: click.Command = getattr(importlib.import_module(f"kingdom.cli.{module}"), attribute)
    return found


def load_all(group: click.Group) -> click.Group:
    """Import all commands and add them to a group, for programs that inspect them."""
    for spec in COMMANDS:
        group.add_command(load(spec))
    return group


class RootGroup(Group):
    """The root of the command line. It imports the command that is called, and no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [spec.name for spec in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        return next((load(spec) for spec in COMMANDS if spec.name == cmd_name), None)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An interruption prints nothing: click would print an empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.Abort from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of commands for each section, all with the same column width."""
        width = max(len(spec.name) for spec in COMMANDS)
        for title, specs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(spec.name.ljust(width), spec.help) for spec in specs])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing any."""
        names = [CompletionItem(spec.name, help=spec.help) for spec in COMMANDS if spec.name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)
