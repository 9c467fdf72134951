"""The engines by name: built-in ones, and those of other distributions (entry points ``kingdom.agents.engines``).

An entry point names a callable that takes the engine's settings (a mapping, from ``engines:`` in the configuration) and
returns an :class:`~kingdom.agents.engine.Engine` or :class:`~kingdom.agents.engine.InProcessEngine`. An engine is
imported when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import Engine, InProcessEngine
from kingdom.agents.errors import EngineUnknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP: Final = "kingdom.agents.engines"
Factory = Callable[[Mapping[str, Any]], Engine | InProcessEngine]

_BUILT_IN: Final = {
    "claude": "kingdom.agents.engines.claude:ClaudeEngine",
    "codex": "kingdom.agents.engines.codex:CodexEngine",
    "command": "kingdom.agents.engines.command:CommandEngine",
    "scripted": "kingdom.agents.engines.scripted:ScriptedEngine",
}


class Engines(Mapping[str, Engine | InProcessEngine]):
    """Engines by name, each created with its settings when it is first used."""

    def __init__(self, settings: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._settings = settings or {}
        self._made: dict[str, Engine | InProcessEngine] = {}

    def __getitem__(self, name: str) -> Engine | InProcessEngine:
        if name not in self._made:
            self._made[name] = self._factory(name)(self._settings.get(name) or {})
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*_BUILT_IN, *(point.name for point in _entry_points())}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _factory(self, name: str) -> Factory:
        if name in _BUILT_IN:
            module, _, attribute = _BUILT_IN[name].partition(":")
            factory: Factory = getattr(importlib.import_module(module), attribute)
            return factory
        for point in _entry_points():
            if point.name == name:
                loaded: Factory = point.load()
                return loaded
        raise KeyError(name)


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # takes longer to load than an engine

    return entry_points(group=GROUP)


def default_engines(config: Mapping[str, Mapping[str, Any]] | None = None) -> Engines:
    """Return all engines, with settings from ``config`` (``{name: {path: …}}``)."""
    return Engines(config)


def find_engine(engines: Mapping[str, Engine | InProcessEngine], name: str) -> Engine | InProcessEngine:
    """Return the engine of that name. Raises :class:`EngineUnknown` with the known names."""
    try:
        return engines[name]
    except KeyError:
        known = ", ".join(sorted(engines))
        raise EngineUnknown(
            f"there is no engine {name!r:.80}: use one of {known}, or install a distribution that brings it "
            f"(entry point group {GROUP})"
        ) from None
