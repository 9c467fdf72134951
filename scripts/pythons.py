"""Find the versions of Python on this machine: ``python -m scripts.pythons 3.12`` prints the newest from 3.12 on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST, NEWEST = 11, 16  # minor versions of Python that are looked for


def find_pythons(oldest: int = OLDEST) -> list[str]:
    """Return a program for each minor version, oldest first; those of a version manager are found, too."""
    found = {}
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *map(str, Path.home().glob(".pyenv/versions/*/bin"))]
    for minor in range(oldest, NEWEST):
        for folder in folders:
            program = shutil.which(f"python3.{minor}", path=folder)
            if program is not None and minor not in found and _is_python(program, minor):
                found[minor] = program
    return list(found.values())


def _is_python(program: str, minor: int) -> bool:
    """Return whether it is that version and can make environments. A version manager may have a program for others."""
    code = "import sys, ensurepip, venv; print(sys.version_info.minor)"
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == str(minor)


if __name__ == "__main__":
    if pythons := find_pythons(int(sys.argv[1].removeprefix("3."))):
        print(pythons[-1])
    else:
        sys.exit(f"there is no Python {sys.argv[1]} or newer on this machine")
