"""Errors of the operating system, as errors of the bus."""

from __future__ import annotations

import errno
from typing import Final

from kingdom.bus.errors import BusError, StorageFull, TransportUnavailable

_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def bus_error(error: OSError, where: str) -> BusError:
    """What to raise instead of an ``OSError``; a worker waits and tries again after either."""
    if isinstance(error, BusError):
        return error
    place = error.filename or where
    if error.errno in _FULL:
        fault: BusError = StorageFull(f"no room left at {place}: {error.strerror}; nothing was written")
    else:
        fault = TransportUnavailable(f"{place}: {error.strerror or error}")
    fault.__cause__ = error
    return fault
