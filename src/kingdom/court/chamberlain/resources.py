"""What the machine has left."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SHORTEST: Final = 1.0  # seconds: the processors' use in less time says nothing


class Resources(Protocol):
    """Where the readings come from."""

    def read(self) -> Mapping[str, float]:
        """Percent in use, by metric: ``cpu_percent``, ``memory_percent``, ``disk_percent``.

        A metric that cannot be read is left out.
        """


class MachineResources:
    """This machine, and the disk that the home is on."""

    def __init__(self, home: Path) -> None:
        import psutil

        self._home = str(home)
        psutil.cpu_percent(interval=None)  # the first call has nothing to compare with
        self._read_at = time.monotonic()

    def read(self) -> dict[str, float]:
        """Percent in use; of the processors, on average since the last reading."""
        import psutil

        readings = {"memory_percent": psutil.virtual_memory().percent}
        if time.monotonic() - self._read_at >= _SHORTEST:
            readings["cpu_percent"] = psutil.cpu_percent(interval=None)
            self._read_at = time.monotonic()
        with contextlib.suppress(OSError):
            readings["disk_percent"] = psutil.disk_usage(self._home).percent
        return {metric: round(value, 1) for metric, value in readings.items()}
