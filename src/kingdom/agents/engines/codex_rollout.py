"""Codex's own record of a conversation (``CODEX_HOME/sessions/…/rollout-…-<thread>.jsonl``): what it has used.

``codex exec`` prints its usage once, at the end, and counts the whole conversation, also what earlier runs of it used.
The record has a line for every answer of the model and a mark where each run begins.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from kingdom.agents.engines.lines import count, mapping, parse_object
from kingdom.agents.port import Tokens

_THREAD_ID: Final = re.compile(r"[0-9A-Za-z-]{1,100}\Z")
_TELLING: Final = (b'"token_count"', b'"task_started"')


class Rollout:
    """Follows the record of one conversation. Where there is none, nothing was used before."""

    def __init__(self, home: Path, thread_id: str) -> None:
        self._home = home
        self._thread_id = thread_id
        self._path: Path | None = None
        self._offset = 0
        self._total = Tokens()
        self.before = Tokens()  # what the conversation had used when its last run began
        self.turns = 0  # answers of the model in the last run

    @property
    def used(self) -> Tokens:
        """What the last run has used."""
        return difference(self._total, self.before)

    def follow(self) -> None:
        """Read what is new."""
        path = self._find()
        if path is None:
            return
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._offset += len(line)
                    if any(word in line for word in _TELLING):
                        self._take(line)
        except OSError:
            return  # a number less; the run does not depend on it

    def _find(self) -> Path | None:
        if self._path is None and _THREAD_ID.match(self._thread_id):
            found = (self._home / "sessions").glob(f"*/*/*/rollout-*-{self._thread_id}.jsonl")
            self._path = next(found, None)
        return self._path

    def _take(self, line: bytes) -> None:
        payload = mapping(mapping(parse_object(line)).get("payload"))
        if payload.get("type") == "task_started":
            self.before, self.turns = self._total, 0
        elif payload.get("type") == "token_count" and (info := mapping(payload.get("info"))):
            self._total = tokens(mapping(info.get("total_token_usage")))
            self.turns += 1


def tokens(usage: dict[str, Any]) -> Tokens:
    """Codex's counts by our classes: its input includes what came from the cache and what went into it."""
    read, written = count(usage.get("cached_input_tokens")), count(usage.get("cache_write_input_tokens"))
    return Tokens(
        input=max(0, count(usage.get("input_tokens")) - read - written),
        output=count(usage.get("output_tokens")),
        cache_read=read,
        cache_write=written,
    )


def difference(now: Tokens, before: Tokens) -> Tokens:
    """What was added; never less than nothing."""
    return Tokens(
        max(0, now.input - before.input),
        max(0, now.output - before.output),
        max(0, now.cache_read - before.cache_read),
        max(0, now.cache_write - before.cache_write),
    )
