"""Import modules in a thread while the process waits for something else: another program, a disk, a server."""

from __future__ import annotations

import contextlib
import importlib
import sys
from threading import Thread


def preload(*modules: str) -> None:
    """Start to import modules, one after the other, and return at once.

    Errors are ignored here: who imports the module by name gets them.
    """
    missing = [module for module in modules if module not in sys.modules]
    if missing:
        Thread(target=_import_all, args=(missing,), name="preload", daemon=True).start()


def _import_all(modules: list[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
