"""Names, and ``NAME=VALUE``, on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kingdom.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence


def settings(given: Sequence[str], option: str, *, nested: bool) -> dict[str, Any]:
    """The values by name. With ``nested``, ``issue.title=…`` is the ``title`` of ``issue``."""
    made: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        parts = name.split(".") if nested else [name]
        if not sign or not all(parts):
            raise output.misuse(f"{option} {one!r} makes no sense: write NAME=VALUE")
        place = made
        for part in parts[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise output.misuse(f"{option} {one!r}: {part} is a value already, it cannot have parts as well")
        if isinstance(place.get(parts[-1]), dict):
            raise output.misuse(f"{option} {one!r}: {name} has parts already, it cannot be a value as well")
        place[parts[-1]] = value
    return made


def check_new_name(name: str, taken: Sequence[str], what: str) -> None:
    """Refuse a name that is none, or that another one has: people and templates know things by their names."""
    from kingdom.workflow.template_file import checked_name

    try:
        checked_name(name)
    except ValueError as error:
        raise output.misuse(str(error)) from None
    if "@" in name:
        raise output.misuse(f"{name!r:.80} is no name here: NAME@BRANCH stands for a branch")
    if name in taken:
        raise output.Failure("ALREADY_THERE", f"there is {what} called {name} already: choose another name")
