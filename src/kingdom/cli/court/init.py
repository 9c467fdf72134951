"""``kingdom init``: create the home of a court."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import PATH, json_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import errors_reported, waiting_shown

if TYPE_CHECKING:
    from kingdom.court.home import Home
    from kingdom.court.init_home import HomeChoices, InitResult, SharedQueues


@command()
@argument(
    "directory",
    type=PATH,
    metavar="[DIR]",
    required=False,
    help="The folder that becomes the home of the court. Default: court, or the home you are in.",
)
@click.option(
    "--general",
    multiple=True,
    metavar="NAME",
    help="A general to install, instead of gen-pr, gen-briefing and, with Slack, gen-slack; may be repeated.",
)
@click.option("--engine", type=click.Choice(["claude", "codex"]), help="The engine of the generals. [default: claude]")
@click.option("--repo", multiple=True, metavar="OWNER/NAME", help="A GitHub repository to watch; may be repeated.")
@click.option("--messages", type=click.Choice(["console", "slack"]), help="Where messages go. [default: console]")
@click.option("--language", type=click.Choice(["en", "ko"]), help="The language of messages. [default: en]")
@click.option("--database", metavar="URL", help="For several machines: the PostgreSQL that they share.")
@click.option("--database-env", metavar="NAME", help="The environment variable with that URL, if it has a password.")
@click.option("--machine", metavar="NAME", help="The name of this machine, the first. [default: the host's name]")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing; use the defaults.")
@click.option("--force", is_flag=True, help="Allow a folder that has other files in it. Overwrites nothing.")
@json_option
def init(
    directory: Path | None,
    general: tuple[str, ...],
    engine: str | None,
    repo: tuple[str, ...],
    messages: str | None,
    language: str | None,
    database: str | None,
    database_env: str | None,
    machine: str | None,
    yes: bool,
    force: bool,
    json: bool,
) -> None:
    """Create the home of a court.

    Creates folders, queues, configuration and the first generals. On a terminal it asks for what was not given. Run
    again, it adds what is missing and changes nothing else.
    """
    import asyncio

    from kingdom.court.home import Home
    from kingdom.court.init_home import HomeChoices, create_home

    directory = directory or (Path() if Home(Path.cwd()).exists else Path("court"))
    asks = not (yes or json or Home(directory).exists) and sys.stdin.isatty() and sys.stdout.isatty()
    with errors_reported():
        shared = _shared_queues(database, database_env, machine)
        choices = HomeChoices(
            _chosen("Which agents do the work?", engine, ["claude", "codex"], asks),
            repo or (_asked_repos() if asks else ()),
            _chosen("Where do messages go?", messages, ["console", "slack"], asks) == "slack",
            _chosen("In which language?", language, ["en", "ko"], asks),
            shared,
        )
        general = general or (_asked_generals(choices.generals) if asks else ())
        if shared is None:
            founded = asyncio.run(create_home(directory, general or None, force=force, choices=choices))
        else:
            from kingdom.court.machines.joining import create_first_machine

            with waiting_shown(shared.database):
                founded = asyncio.run(create_first_machine(directory, shared, choices, general or None, force=force))
    if json:
        output.print_json({"home": str(founded.home.root), "new": founded.created, "made": founded.added})
    else:
        _print_founded(founded, directory, choices)


def _shared_queues(url: str | None, variable: str | None, machine: str | None) -> SharedQueues | None:
    from kingdom.cli.court.machines import database_of, machine_name
    from kingdom.court.init_home import SharedQueues

    if url is None and variable is None:
        if machine is not None:
            raise output.usage_error("--machine needs --database: only a court on several machines names them")
        return None
    return SharedQueues(machine_name(machine), *database_of(url, variable))


def _chosen(question: str, given: str | None, words: list[str], asks: bool) -> Any:
    """Return what was given, else ask, else the first word."""
    if given is not None or not asks:
        return given or words[0]
    return click.prompt(question, type=click.Choice(words), default=words[0])


def _asked_repos() -> tuple[str, ...]:
    from kingdom.court.errors import CourtError
    from kingdom.court.init_home import check_repositories

    def checked(text: str) -> tuple[str, ...]:
        names = tuple(text.replace(",", " ").split())
        try:
            check_repositories(names)
        except CourtError as error:
            raise click.UsageError(str(error)) from error
        return names

    question = "Which GitHub repositories shall it watch, such as acme/shop? (several with spaces, Enter for none)"
    names: tuple[str, ...] = click.prompt(question, default="", show_default=False, value_proc=checked)
    return names


def _asked_generals(usual: tuple[str, ...]) -> tuple[str, ...]:
    from kingdom.court.init_home import describe_shipped_generals

    known = describe_shipped_generals()

    def checked(text: str) -> tuple[str, ...]:
        names = tuple(text.replace(",", " ").split())
        if unknown := [name for name in names if name not in known]:
            raise click.UsageError(f"{unknown[0]!r} is none of them")
        return names

    output.say("Which generals shall it have? (several with spaces; kingdom general install NAME adds others later)")
    for name, what in known.items():
        output.say(f"  {name:12}  {what}")
    names: tuple[str, ...] = click.prompt("Generals", default=" ".join(usual), value_proc=checked)
    return names


def _example_event(court: Home) -> str | None:
    """Return a type of events that a general takes."""
    from kingdom.court.packages.installed import load_generals

    generals = sorted(load_generals(court).by_name.values(), key=lambda general: general.manifest.order)
    types = [one.type for general in generals for one in general.manifest.subscribes if not (one.own or one.is_pattern)]
    return next(iter(types), None)


def _print_founded(founded: InitResult, directory: Path, choices: HomeChoices) -> None:
    for name in founded.added:
        output.say(f"  + {name}")
    if not founded.added:
        output.say(f"{founded.home.root} is complete: nothing was changed")
        return
    if not founded.created:
        output.say(f"{founded.home.root} is complete again; existing files were not changed")
        return
    output.say(f"{founded.home.root} is the home of a court now. Next steps:")
    if founded.home.root != Path.cwd():
        output.say(f"  cd {directory}")
    if choices.repos:
        output.say("  export GITHUB_TOKEN=…                      then kingdom connect github checks it")
    if choices.slack:
        output.say("  export SLACK_BOT_TOKEN=… SLACK_APP_TOKEN=… then kingdom connect slack checks them")
    output.say("  kingdom general ls                         list the generals and the events they handle")
    output.say("  kingdom doctor                             check that everything they need is installed")
    output.say("  kingdom up                                 start the court")
    if (kind := _example_event(founded.home)) is not None:
        output.say(f"  {f'kingdom emit {kind} …':41}  give it work")
    if choices.shared is not None:
        output.say("  kingdom join …                             on each further machine, with the same database")
    output.say("The settings are in config/system.yaml, the generals in config/generals/.")
