"""How event types are declared: the decorator, the checks of emitters, and the one list of all types."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, TypeVar, cast, dataclass_transform, get_args, get_type_hints

from kingdom.journal.errors import InvalidEvent

GENERAL: Final = "general"  # stands for every general; each one signs with its own name, gen-<domain>
Number = int | float

_GENERAL_NAME: Final = re.compile(r"gen-[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WORDS: Final[Mapping[type, str]] = {str: "text", int: "a whole number", float: "a number", type(None): "null"}

D = TypeVar("D", bound="EventData")


@dataclass(frozen=True, slots=True)
class DataField:
    """A field of an event's data: its name in Python, its key in JSON, and what it may hold."""

    name: str
    key: str
    kinds: tuple[type, ...]

    @property
    def words(self) -> str:
        """What it may hold, for people."""
        kinds = [kind for kind in self.kinds if not (kind is int and float in self.kinds)]
        return " or ".join(_WORDS[kind] for kind in kinds)

    def check(self, value: object, event_type: str) -> None:
        """Raise :class:`InvalidEvent` when ``value`` is of another kind."""
        if isinstance(value, bool) or not isinstance(value, self.kinds):
            raise InvalidEvent(f"{event_type}: {self.key} must be {self.words}, not {value!r:.80}")


@dataclass(frozen=True, slots=True)
class EventType:
    """What the catalog says of one type of event."""

    name: str
    actors: tuple[str, ...]
    meaning: str
    fields: tuple[DataField, ...]
    make: type[EventData]

    @property
    def category(self) -> str:
        """The part before the dot."""
        return self.name.partition(".")[0]

    def allows(self, actor: str) -> bool:
        """Whether this actor may emit it."""
        return actor in self.actors or (GENERAL in self.actors and _GENERAL_NAME.fullmatch(actor) is not None)

    def actor_or_error(self, actor: str | None) -> str:
        """The actor to write down: the one given, or the only one there can be."""
        if actor is None and len(self.actors) == 1 and self.actors[0] != GENERAL:
            return self.actors[0]
        if isinstance(actor, str) and self.allows(actor):
            return actor
        names = " or ".join("gen-<name>" if name == GENERAL else name for name in self.actors)
        raise InvalidEvent(f"{self.name}: actor must be {names}, not {actor!r:.80}")

    def data_from(self, values: Mapping[str, Any]) -> EventData:
        """Make the typed data from JSON keys; a key too many, too few, or of the wrong kind is an error."""
        named = {field.key: field.name for field in self.fields}
        if named.keys() != values.keys():
            missing, unknown = sorted(named.keys() - values.keys()), sorted(values.keys() - named.keys(), key=str)
            wrong = [f"without {', '.join(missing)}"] if missing else []
            wrong += [f"with unknown {', '.join(map(str, unknown))}"] if unknown else []
            raise InvalidEvent(f"{self.name}: data {' and '.join(wrong)}; its fields are {', '.join(named)}")
        return self.make(**{named[key]: value for key, value in values.items()})


class EventData:
    """Base of the data of every event type. Its fields are checked when it is made."""

    __slots__ = ()
    spec: ClassVar[EventType]

    def __post_init__(self) -> None:
        for field in self.spec.fields:
            value = getattr(self, field.name)
            if type(value) not in field.kinds:
                field.check(value, self.spec.name)

    def to_dict(self) -> dict[str, Any]:
        """The data under its JSON keys, in the catalog's order."""
        return {field.key: getattr(self, field.name) for field in self.spec.fields}


CATALOG: Final[dict[str, EventType]] = {}  # every type by its name, in the order of the catalog


@dataclass_transform(frozen_default=True)
def event(name: str, *, by: tuple[str, ...], meaning: str) -> Callable[[type[D]], type[D]]:
    """Declare an event type: a class of its data's fields becomes a frozen dataclass and an entry of the catalog."""

    def declare(cls: type[D]) -> type[D]:
        made = dataclass(frozen=True, slots=True)(cls)
        hints = get_type_hints(made)
        made.spec = EventType(
            name=name,
            actors=by,
            meaning=meaning,
            # A key that is a word of Python (from) has an underscore after its name there.
            fields=tuple(
                DataField(item.name, item.name.rstrip("_"), _kinds(hints[item.name]))
                for item in fields(cast(Any, made))
            ),
            make=made,
        )
        assert name not in CATALOG, f"{name} is declared twice"
        CATALOG[name] = made.spec
        return made

    return declare


def event_type(name: str) -> EventType:
    """What the catalog says of ``name``, or :class:`InvalidEvent` with the nearest names there are."""
    try:
        return CATALOG[name]
    except (KeyError, TypeError):
        near = difflib.get_close_matches(str(name), CATALOG, n=3) or list(CATALOG)
        raise InvalidEvent(f"there is no internal event {name!r:.80}; allowed: {', '.join(near)}") from None


def _kinds(hint: Any) -> tuple[type, ...]:
    return get_args(hint) or (hint,)
