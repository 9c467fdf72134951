"""How often Python looks for garbage, and among how many objects: it stops the process meanwhile."""

from __future__ import annotations

import gc
from typing import Final

# A general with hundreds of tasks holds many objects, and so does a page of the dashboard. Python's default, a
# collection every 700 new objects, takes 4 % of a general's time.
_THRESHOLDS: Final = (10_000, 10, 10)

_excluded = False


def collect_rarely() -> None:
    """Have fewer collections, for processes that run long and hold many objects."""
    gc.set_threshold(*_THRESHOLDS)


def exclude_current() -> None:
    """Exclude all current objects from collections.

    For processes that only run one thing. A full collection scanned 100,000 objects of NiceGUI alone and blocked the
    event loop for a third of a second. In a forked process it would write to every page that it shares, and copy it.
    """
    global _excluded
    gc.collect()
    gc.freeze()
    _excluded = True


def exclude_loaded() -> None:
    """Exclude what was loaded since :func:`exclude_current`, such as an index; nothing where that was not called.

    It does not collect first: that would block the event loop, to free the little that loading has left.
    """
    if _excluded:  # Python could tell whether anything is frozen, but counts it all for that
        gc.freeze()
