"""``kingdom token``: the access tokens of people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import json_option, workflow_home_option
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import errors_reported, find_workflow_home, user_name

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.web.security.tokens import AccessToken

_ROLE_NAMES = ("look", "answer", "operate", "own")


@group("token")
def app() -> None:
    """Manage access tokens of people: add, list, change, revoke.

    Each has a name, which signs what the person does, and a role: look (see everything), answer (also answer
    questions), operate (also run, retry, cancel and change), own (also install generals and manage tokens).
    """


@command()
@argument("name", metavar="NAME", help="The name of the person, for example ann or ann@example.org.")
@click.option("--role", type=click.Choice(_ROLE_NAMES), default="look", show_default=True, help="What they may do.")
@workflow_home_option
@json_option
def add(name: str, role: Any, home: Path | None, json: bool) -> None:
    """Give a person a token, and print it once.

    It is stored as a hash only: if it gets lost, revoke it and add another.
    """
    from kingdom.web.record import running_server
    from kingdom.web.security.credentials import login_link
    from kingdom.web.security.tokens import TokenStore

    root = _root(home)
    with errors_reported():
        value = TokenStore(root).add(name, role)
    _record(root, "createToken", name)
    server = running_server(root)
    link = None if server is None else login_link(server.url, value)
    if json:
        output.print_json({"name": name, "role": role, "token": value, "link": link})
        return
    output.say(f"{name} has the role {role}. The token, shown this once:")
    output.say(value)
    if link is None:
        output.say("it logs a browser in at /login?token=TOKEN of the dashboard, which is not running now")
    else:
        output.say(f"log in with {link}")


@command()
@workflow_home_option
@json_option
def ls(home: Path | None, json: bool) -> None:
    """List tokens: name, role, when they were created and last used."""
    from kingdom.web.security.tokens import TokenStore

    tokens = TokenStore(_root(home)).list()
    if json:
        output.print_json({"tokens": [_document(one) for one in tokens]})
    elif tokens:
        rows = [(one.name, one.role, one.created_at, one.last_used_at or "never") for one in tokens]
        output.print_table(("name", "role", "created", "last used"), rows)
    else:
        output.say("nobody has a token of their own: kingdom token add NAME --role ROLE creates one")


@command()
@argument("name", metavar="NAME", help="The name of the person.")
@argument("role", metavar="ROLE", type=click.Choice(_ROLE_NAMES), help="What they may do from now on.")
@workflow_home_option
@json_option
def role(name: str, role: Any, home: Path | None, json: bool) -> None:
    """Change the role of a person. Their token stays valid.

    A running server applies it at once: open pages load again within a second, and streams are closed.
    """
    from kingdom.web.security.tokens import TokenStore

    root = _root(home)
    with errors_reported():
        TokenStore(root).change_role(name, role)
    _record(root, "changeTokenRole", name)
    if json:
        output.print_json({"name": name, "role": role})
    else:
        output.say(f"{name} has the role {role} now")


@command()
@argument("name", metavar="NAME", help="The name of the person.")
@workflow_home_option
@json_option
def rm(name: str, home: Path | None, json: bool) -> None:
    """Revoke the token of a person.

    A running server refuses it at once, and closes their open pages and streams within a second.
    """
    from kingdom.web.security.tokens import TokenStore

    root = _root(home)
    with errors_reported():
        TokenStore(root).remove(name)
    _record(root, "revokeToken", name)
    if json:
        output.print_json({"revoked": name})
    else:
        output.say(f"the token of {name} is revoked")


def _root(home: Path | None) -> Path:
    return find_workflow_home(home, None).root.parent


def _record(root: Path, action: str, name: str) -> None:
    """Write to the journal who changed the tokens, if there is a court."""
    from kingdom.court.home import Home
    from kingdom.homes import is_court
    from kingdom.journal import Journal
    from kingdom.journal.catalog import SystemPersonActed

    if is_court(root):
        with errors_reported():
            Journal(Home(root).journal).emit(SystemPersonActed(user_name(), action, name), "envoy")


def _document(token: AccessToken) -> dict[str, Any]:
    return {
        "name": token.name,
        "role": token.role,
        "created_at": token.created_at,
        "last_used_at": token.last_used_at,
    }


for _command in (add, ls, role, rm):
    app.add_command(_command)
