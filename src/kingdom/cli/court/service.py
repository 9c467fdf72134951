"""``kingdom service``: a unit for systemd."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated, Final

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.home import HomeOption, find_home

# KillMode=process: soldiers live in sessions of their own and are adopted by the next start.
_UNIT: Final = """\
[Unit]
Description=Kingdom court in {home}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={program} up --home {home}
ExecStop={program} down --home {home}
WorkingDirectory={home}
Environment=PATH={path}
# EnvironmentFile={home}/.env
KillMode=process
Restart=on-failure
RestartSec=5
TimeoutStopSec=60

[Install]
WantedBy={target}
"""


def service(
    system: Annotated[bool, typer.Option("--system", help="For the whole machine instead of one user.")] = False,
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Print a unit for systemd that keeps the court up.

    Save it as ~/.config/systemd/user/kingdom.service, then: systemctl --user enable --now kingdom
    """
    court = find_home(home)
    program = shutil.which("kingdom") or f"{sys.executable} -m kingdom"
    target = "multi-user.target" if system else "default.target"
    root = _quoted(str(court.root))
    unit = _UNIT.format(home=root, program=program, path=os.environ.get("PATH", os.defpath), target=target)
    if json:
        output.emit({"unit": unit})
    else:
        output.say(unit.rstrip())


def _quoted(path: str) -> str:
    """A path as systemd reads it: a percent sign stands for itself only when it is doubled."""
    doubled = path.replace("%", "%%")
    return f'"{doubled}"' if any(character.isspace() for character in doubled) else doubled
