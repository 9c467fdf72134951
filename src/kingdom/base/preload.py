"""Import modules in a thread while the process waits for something else: another program, a disk, a server."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from threading import Thread


def preload(*modules: str) -> Callable[[], None]:
    """Start to import modules, one after the other, and return at once; what is returned waits for the end.

    Wait before you import other parts of the same packages: two threads that import parts of one package, each for its
    own part, wait for each other, and Python then fails one of the imports. Errors are ignored here: who imports the
    module by name gets them.
    """
    missing = [module for module in modules if module not in sys.modules]
    thread = Thread(target=_import_all, args=(missing,), name="preload", daemon=True)
    thread.start()
    return thread.join


def _import_all(modules: list[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
