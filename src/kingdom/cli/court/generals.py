"""``kingdom general``: the generals of a court."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import PATH, home_option, json_option, yes_option
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import errors_reported, find_home, user_name, with_court

if TYPE_CHECKING:
    from kingdom.court.home import Home
    from kingdom.court.packages.installed import GeneralPackage


@group("general")
def app() -> None:
    """Manage generals: list, check, install, enable, disable, remove."""


@command()
@home_option
@json_option
def ls(home: Path | None, json: bool) -> None:
    """List generals: engine, events, schedules, problems."""
    from kingdom.court.packages.disabled import DisabledGenerals
    from kingdom.court.packages.installed import load_generals
    from kingdom.court.packages.installer import check_package

    court = find_home(home)
    generals, disabled = load_generals(court), DisabledGenerals(court)
    names = sorted({*generals.by_name, *generals.broken})
    problems = {name: check_package(court.general(name), _engine_names()) for name in names}
    if json:
        documents = [
            {**_document(name, generals.by_name.get(name), problems[name]), "enabled": name not in disabled}
            for name in names
        ]
        output.print_json({"generals": documents})
    elif names:
        columns = ("general", "state", "engine", "hears", "schedules", "at once", "problems")
        rows = [_row(name, generals.by_name.get(name), problems[name]) for name in names]
        states = ["disabled" if name in disabled else "enabled" for name in names]
        output.print_table(columns, [(row[0], state, *row[1:]) for row, state in zip(rows, states, strict=True)])
    else:
        output.say(f"no generals in {court.generals}: kingdom general install DIR installs one")


@command()
@argument(
    "which",
    required=False,
    metavar="[DIR|NAME]",
    help="A folder or an installed general. Default: all installed generals.",
)
@home_option
@json_option
def check(which: str | None, home: Path | None, json: bool) -> None:
    """Check a general for problems.

    Exits 1 when there are any.
    """
    from kingdom.court.packages.installer import check_package

    folders = _folders(which, home)
    problems = [problem for folder in folders for problem in check_package(folder, _engine_names())]
    if json:
        output.print_json({"checked": [str(folder) for folder in folders], "problems": problems})
    else:
        for problem in problems:
            output.say(problem)
        if not problems:
            output.say(f"{', '.join(folder.name for folder in folders) or 'no generals'}: no problems")
    if problems:
        raise click.exceptions.Exit(output.FAILED)


@command()
@argument("name", help="The name, for example gen-pr.")
@click.option(
    "--hears", multiple=True, required=True, metavar="TYPE", help="A type of event it handles; may be repeated."
)
@click.option("--engine", default="scripted", metavar="NAME", help="The engine of its soldiers.")
@click.option("--description", default="A new general.", metavar="TEXT", help="What it is for.")
@home_option
@json_option
def new(name: str, hears: tuple[str, ...], engine: str, description: str, home: Path | None, json: bool) -> None:
    """Create a general in the court, to be edited."""
    from kingdom.court.machines.capacity import require_lead
    from kingdom.court.packages.installer import check_package, create_general

    court = find_home(home)
    with errors_reported():
        require_lead(court)
        folder = create_general(court, name, engine=engine, hears=hears, description=description)
    problems = check_package(folder, _engine_names())
    if json:
        output.print_json({"folder": str(folder), "problems": problems})
    else:
        output.say(f"created {folder} with manifest.yaml and prompt.md: edit them")
        for problem in problems:
            output.say(problem)


@command()
@argument(
    "directory", type=PATH, metavar="DIR|NAME", help="The folder of the general, or the name of one that comes along."
)
@click.option("--replace", is_flag=True, help="Replace the general of that name.")
@home_option
@json_option
def install(directory: Path, replace: bool, home: Path | None, json: bool) -> None:
    """Check a general and copy it into the court.

    With Kingdom come gen-briefing, gen-issue, gen-jira, gen-pr, gen-slack and gen-test.
    """
    from kingdom.court.errors import InvalidPackage
    from kingdom.court.init_home import install_shipped, shipped_generals
    from kingdom.court.machines.capacity import require_lead
    from kingdom.court.packages.installer import install_package

    court = find_home(home)
    with errors_reported():
        require_lead(court)
    missing = directory.name == str(directory) and not directory.exists()
    shipped = missing and directory.name in shipped_generals()
    if missing and not shipped:
        known = ", ".join(shipped_generals())
        raise output.CommandError("INVALID_PACKAGE", f"there is no folder {directory}, and Kingdom has only {known}")
    try:
        if shipped:
            general = install_shipped(court, directory.name, replace=replace)
        else:
            general = install_package(court, directory, replace=replace, engines=_engine_names())
    except InvalidPackage as error:
        problems = str(error).splitlines()
        if json or len(problems) == 1:
            raise output.CommandError(error.code, str(error)) from error
        for problem in problems:
            output.say(problem)
        raise output.CommandError(error.code, f"{len(problems)} problems: {directory} was not installed") from error
    if json:
        output.print_json({"installed": _document(general.name, general, [])})
    else:
        output.say(f"{general.name} is installed in {general.folder}")
        output.say("A court that is up starts it by itself.")


@command()
@argument("name", help="The name of the general.")
@click.option("--force", is_flag=True, help="Remove it even if it has unfinished tasks.")
@yes_option
@home_option
@json_option
def remove(name: str, force: bool, yes: bool, home: Path | None, json: bool) -> None:
    """Remove a general from the court.

    Its memory, results and workspace stay.
    """
    import asyncio

    from kingdom.court.machines.capacity import require_lead
    from kingdom.court.packages.installer import remove_package, unfinished_tasks

    court = find_home(home)
    with errors_reported():
        require_lead(court)
        if not force and (tasks := asyncio.run(unfinished_tasks(court, name))):
            raise output.CommandError(
                "NOT_FINISHED",
                f"{name} has {output.plural(len(tasks), 'unfinished task')} ({', '.join(tasks[:3])}"
                f"{', …' if len(tasks) > 3 else ''}): wait for them, cancel them (kingdom task cancel), or use --force",
            )
        output.confirm(f"Remove {court.general(name)}?", yes=yes)
        remove_package(court, name)
    if json:
        output.print_json({"removed": name})
    else:
        output.say(f"{name} is removed; its memory stays in {court.general_memory(name)}")


@command()
@argument("name", help="The name of the general.")
@home_option
@json_option
def enable(name: str, home: Path | None, json: bool) -> None:
    """Enable a general again.

    What waited for it starts, as far as there is room.
    """
    _switch(name, home, enabled=True, json=json)


@command()
@argument("name", help="The name of the general.")
@home_option
@json_option
def disable(name: str, home: Path | None, json: bool) -> None:
    """Disable a general: it starts nothing.

    What it has begun ends. Its events and schedules wait until it is enabled.
    """
    _switch(name, home, enabled=False, json=json)


def _switch(name: str, home: Path | None, *, enabled: bool, json: bool) -> None:
    from kingdom.court.packages.disabled import switch_general

    changed = with_court(home, lambda services: switch_general(services, name, enabled=enabled, user=user_name()))
    if json:
        output.print_json({"name": name, "enabled": enabled, "changed": changed})
    else:
        output.say(f"{name} is {'' if changed else 'already '}{'enabled' if enabled else 'disabled'}")


def _engine_names() -> frozenset[str]:
    from kingdom.agents.engines import default_engines

    return frozenset(default_engines())


def _folders(which: str | None, named: Path | None) -> list[Path]:
    """Return the folders to check. A local folder wins over an installed general of that name."""
    if which is not None and ("/" in which or Path(which).is_dir()):
        return [Path(which)]
    court = find_home(named)
    if which is None:
        from kingdom.court.packages.installed import general_folders

        return general_folders(court)
    return [_installed_folder(court, which)]


def _installed_folder(court: Home, name: str) -> Path:
    with errors_reported():
        folder = court.general(name)
    if not folder.is_dir():
        raise output.CommandError("NO_GENERAL", f"{name} is neither a folder here nor a general in {court.generals}")
    return folder


def _document(name: str, general: GeneralPackage | None, problems: list[str]) -> dict[str, Any]:
    manifest = None if general is None else general.manifest.model_dump(mode="json")
    return {"name": name, "manifest": manifest, "problems": problems}


def _row(name: str, general: GeneralPackage | None, problems: list[str]) -> tuple[object, ...]:
    shown = output.Styled("; ".join(problems) or "–", "red" if problems else "")
    if general is None:
        return (output.Styled(name, "red"), "–", "–", "–", "–", shown)
    manifest = general.manifest
    engine = manifest.engine.name + (f" ({manifest.engine.model})" if manifest.engine.model else "")
    hears = ", ".join(subscription.type for subscription in manifest.subscribes) or "–"
    schedules = ", ".join(f"{schedule.name}: {schedule.cron}" for schedule in manifest.schedules) or "–"
    return (name, engine, hears, schedules, manifest.concurrency, shown)


for _command in (ls, new, check, install, enable, disable, remove):
    app.add_command(_command)
