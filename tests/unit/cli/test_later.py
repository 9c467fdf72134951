"""Commands that are imported when they are called: what the root says of them without having seen them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import typer

from kingdom.cli.commands import COMMANDS, CommandSpec, load


def help_of(found: Any) -> str:
    """What a function or a group says of itself."""
    if not isinstance(found, typer.Typer):
        return inspect.getdoc(found) or ""
    callback = found.registered_callback
    own = found.info.help
    return own if isinstance(own, str) else inspect.getdoc(callback.callback if callback else None) or ""


@pytest.mark.parametrize("place", COMMANDS, ids=lambda place: place.name)
def test_the_words_of_the_root_are_the_first_sentence_of_the_command(place: CommandSpec) -> None:
    said = " ".join(help_of(load(place)).split())
    assert said.startswith(place.help)
    assert place.help.endswith(".")
    assert said[len(place.help) :][:1] in ("", " ")


def test_no_name_stands_for_two_commands() -> None:
    names = [place.name for place in COMMANDS]
    assert len(set(names)) == len(names)
