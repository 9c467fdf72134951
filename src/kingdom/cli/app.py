"""The root of the command line, and the exit codes of errors.

Exit codes: 0 success, 1 failure (or a check found an error), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from kingdom import __version__
from kingdom.cli import output
from kingdom.cli.commands import RootGroup, missing_package


def _print_completion(context: click.Context, parameter: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        from kingdom.cli import completion

        shell = completion.current_shell()
        act = completion.install if parameter.name == "install_completion" else completion.script
        output.say(act(context.command, shell))
        context.exit()


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, message="kingdom %(version)s")
@click.option(
    "--install-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    help="Install completion for the current shell.",
)
@click.option(
    "--show-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    help="Show completion for the current shell, to copy it or customize the installation.",
)
def app() -> None:
    """Kingdom: an event-driven runtime for AI teammates on a durable event bus."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. User errors become one line, never a traceback."""
    as_json = "--json" in arguments
    try:
        return app.main(args=list(arguments), prog_name="kingdom", standalone_mode=False) or 0
    except output.CommandError as error:
        return output.print_error(error, as_json)
    except click.UsageError as error:
        return output.print_error(output.from_usage_error(error), as_json)
    except (click.Abort, KeyboardInterrupt):
        return output.INTERRUPTED
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        return output.print_error(missing, as_json)
    except OSError as error:
        return output.print_error(output.CommandError("OS_ERROR", str(error)), as_json)
