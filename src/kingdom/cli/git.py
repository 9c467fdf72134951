"""``kingdom git …``: the repositories workflows work on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Yes
from kingdom.cli.workflow.options import HomeOption, StoreOption
from kingdom.cli.workflow.session import in_parts, in_store
from kingdom.cli.workflow.settings import check_new_name

if TYPE_CHECKING:
    from kingdom.workflow.domain.sources import Git
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.ports import Store

app = typer.Typer()
_MOST = 100_000


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Look after the repositories that workflows work on."""
    output.help_when_alone(context)


def add(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="https://…, ssh://…, user@host:path, or a folder of this machine.")
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What to call it; without it, the last part of the URL.", show_default=False),
    ] = None,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Register a repository. It is cloned when the first workflow needs it."""
    full = str(Path(url).absolute()) if Path(url).is_dir() else url
    called = name or re.split(r"[/:]", full.rstrip("/"))[-1].removesuffix(".git")
    made = in_parts(home, store, lambda parts: _add(parts, called, full))
    if json:
        output.emit(_document(made))
    else:
        output.say(f"{made.name} is registered as {made.id}")


def ls(home: HomeOption = None, store: StoreOption = None, json: Json = False) -> None:
    """List the repositories."""
    found = in_store(home, store, _all)
    if json:
        output.emit({"repositories": [_document(git) for git in found]})
    elif found:
        rows = [(git.name, git.url, git.id, len(git.used_by)) for git in found]
        output.print_table(("repository", "url", "id", "workflows"), rows, right=("workflows",))
    else:
        output.say("no repositories: kingdom git add URL registers one")


def rm(
    repository: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")],
    yes: Yes = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Delete a repository that no workflow uses. Templates forget it; its clone goes, unless it holds their work."""
    output.confirm(f"Delete {repository}? Templates that name it will forget it.", yes=yes)
    removed = in_parts(home, store, lambda parts: _remove(parts, repository))
    if json:
        output.emit({"deleted": _document(removed)})
    else:
        output.say(f"{removed.name} is deleted")


async def _add(parts: Parts, name: str, url: str) -> Git:
    from kingdom.gitops.urls import check_url
    from kingdom.workflow.usecases.create_git import CreateGit

    check_url(url, allow_local=True)
    check_new_name(name, [git.name for git in await _all(parts.store)], "a repository")
    git_id = await CreateGit(parts).execute(name, url)
    async with parts.store.reading() as tx:
        return await tx.gits.get(git_id)


async def _all(store: Store) -> list[Git]:
    async with store.reading() as tx:
        return sorted(await tx.gits.list(limit=_MOST), key=lambda git: git.name)


async def _remove(parts: Parts, word: str) -> Git:
    from kingdom.cli.workflow.finding import find_git
    from kingdom.workflow.usecases.delete_git import DeleteGit

    async with parts.store.reading() as tx:
        git = await find_git(tx, word)
    await DeleteGit(parts).execute(git.id)
    return git


def _document(git: Git) -> dict[str, Any]:
    return {"id": git.id, "name": git.name, "url": git.url, "usedBy": sorted(git.used_by)}


for _command in (add, ls, rm):
    app.command()(_command)
