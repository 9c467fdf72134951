"""What tends to go wrong with a queue directory."""

from __future__ import annotations

from kingdom.bus.delivery import Check


def examine(root: str) -> list[Check]:
    """x"""
    return []
