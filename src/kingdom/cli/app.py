"""The root of the command line, and what becomes of errors.

Exit codes: 0 done, 1 it failed (or a check found an error), 2 the command was called wrongly, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from kingdom import __version__
from kingdom.cli import output
from kingdom.cli.commands import RootGroup

# The only usage error that every version of typer exports is BadParameter; its base is what they all share.
_UsageError: Final[type[Exception]] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    cls=RootGroup,
    help="Kingdom: an event-driven runtime for AI teammates, and the durable event bus it stands on.",
    rich_markup_mode=None,  # rich help pages cost more time than everything else `--help` does
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        output.say(f"kingdom {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    output.show_help_if_no_command(context)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return its exit code. Mistakes of the user become one line, never a traceback."""
    as_json = "--json" in arguments
    try:
        return app(args=list(arguments), prog_name="kingdom", standalone_mode=False) or 0
    except output.CommandError as failure:
        return output.print_error(failure, as_json)
    except _UsageError as error:
        return output.print_error(output.from_usage_error(error), as_json)
    except (typer.Abort, KeyboardInterrupt):
        return output.INTERRUPTED
    except OSError as error:
        return output.print_error(output.CommandError("OS_ERROR", str(error)), as_json)
