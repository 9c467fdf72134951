"""Texts of the pages about workflows and templates."""

from __future__ import annotations

from typing import Final

WORDS: Final[dict[str, str]] = {}
