"""The root of the command line, and the exit codes of errors.

Exit codes: 0 success, 1 failure (or a check found an error), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from kingdom import __version__
from kingdom.cli import output
from kingdom.cli.commands import RootGroup, missing_package

# BadParameter is the only usage error that every version of typer exports; its base class covers the others.
_UsageError: Final[type[Exception]] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    cls=RootGroup,
    help="Kingdom: an event-driven runtime for AI teammates on a durable event bus.",
    rich_markup_mode=None,  # rich help pages take longer than everything else `--help` does
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
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
    """Run one command line and return its exit code. User errors become one line, never a traceback."""
    as_json = "--json" in arguments
    try:
        return app(args=list(arguments), prog_name="kingdom", standalone_mode=False) or 0
    except output.CommandError as error:
        return output.print_error(error, as_json)
    except _UsageError as error:
        return output.print_error(output.from_usage_error(error), as_json)
    except (typer.Abort, KeyboardInterrupt):
        return output.INTERRUPTED
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        return output.print_error(missing, as_json)
    except OSError as error:
        return output.print_error(output.CommandError("OS_ERROR", str(error)), as_json)
