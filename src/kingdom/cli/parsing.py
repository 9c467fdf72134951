"""Commands, groups and arguments: click's, with the few differences of this program.

A help page lists arguments with their texts, a group that is called alone shows its help or runs its default command,
and a wrong name of a command is answered with similar ones.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import click


class Argument(click.Argument):
    """An argument with a text for the help page. Click has that from version 8.5 on, under another heading."""

    def __init__(self, *names: Any, help: str = "", **attributes: Any) -> None:  # noqa: A002 - named as in click.option
        super().__init__(*names, **attributes)
        self.description = help


class Command(click.Command):
    """A command whose help page lists its arguments above its options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then the options."""
        rows = [
            (argument.make_metavar(ctx), argument.description + ("  [required]" if argument.required else ""))
            for argument in self.params
            if isinstance(argument, Argument)
        ]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)


class Group(click.Group):
    """A group that, called without a command, runs its ``default`` one, or shows its help if it has none."""

    command_class = Command
    default: str | None = None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options of the group; without a command, take the default one, or ask for its help."""
        named = args and (not args[0].startswith("-") or args[0] in ("-h", "--help"))
        if self.default is not None and not named and not ctx.resilient_parsing:
            args = [self.default, *args]
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest similar ones when there is none of that name."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            close = ", ".join(repr(match) for match in get_close_matches(name, known))
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {close}?" if close else ""))
        return super().resolve_command(ctx, args)


def command(name: str | None = None) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function. Its docstring is the help page."""
    return click.command(name, cls=Command)


def group(name: str) -> Callable[[Callable[..., None]], Group]:
    """Make a group of a function. Its docstring is the help page."""
    return click.group(name, cls=Group)


def argument(name: str, *, help: str, **attributes: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:  # noqa: A002
    """Add an argument to a command."""
    return click.argument(name, cls=Argument, help=help, **attributes)
