"""The peers, each in its best configuration we know of. A peer that is not installed is reported as not measured."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Peer:
    """A measurement of a peer. Its module is imported in the measuring process, so that a failure there is its own."""

    module: str
    function: str

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Import the peer and measure it."""
        return getattr(importlib.import_module(f"bench.peers.{self.module}"), self.function)(*arguments, **options)
