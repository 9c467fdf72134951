"""Completion for bash, zsh and fish: click's scripts, printed or installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from kingdom.cli.output import CommandError, usage_error

_VARIABLE: Final = "_KINGDOM_COMPLETE"  # the script calls the program with it
_SHELLS: Final = ("bash", "zsh", "fish")
_ZSH_HEAD: Final = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"


def current_shell() -> str:
    """Return the name of the user's shell."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _SHELLS:
        raise usage_error(f"SHELL names {shell or 'no shell'}: there is completion for {', '.join(_SHELLS)}")
    return shell


def script(command: click.Command, shell: str) -> str:
    """Return the completion script of a shell."""
    found = get_completion_class(shell)
    assert found is not None, shell
    try:
        text = found(command, {}, "kingdom", _VARIABLE).source()
    except RuntimeError as error:  # a version of bash that cannot do it
        raise CommandError("NO_COMPLETION", str(error)) from error
    return (_ZSH_HEAD if shell == "zsh" else "") + text


def install(command: click.Command, shell: str) -> str:
    """Write the completion script where the shell finds it; return what was done.

    Fish reads a folder. Bash and zsh read the script because their start file gets a line for it, once.
    """
    text = script(command, shell)
    if shell == "fish":
        target = _folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "kingdom.fish"
        _write(target, text)
        return f"{shell} completion installed in {target}"
    target = _folder("XDG_DATA_HOME", ".local/share") / "kingdom" / f"completion.{shell}"
    _write(target, text)
    start_file = Path.home() / f".{shell}rc"
    line = f'source "{target}"'
    before = start_file.read_text("utf-8") if start_file.exists() else ""
    if line not in before.splitlines():
        with start_file.open("a", encoding="utf-8") as file:
            file.write(("" if before.endswith("\n") or not before else "\n") + line + "\n")
    return f"{shell} completion installed in {target}, which {start_file} reads: start a new shell to use it"


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
