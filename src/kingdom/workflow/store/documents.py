"""Aggregates as JSON, by the declared types of their fields, so that a new field needs no code here."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import orjson

A = TypeVar("A")
Reader = Callable[[Any], Any]
_VERSION_FIELD: Final = "version"  # stored in a column, not in the document
_LONG_NUMBER: Final = re.compile(r"\d{19}")  # orjson reads integers of over 64 bits as floats


def encode(item: object, without: tuple[str, ...] = ()) -> str:
    """Return the JSON of an aggregate, without its version and some other fields."""
    document = _plain(item)
    for name in (_VERSION_FIELD, *without):
        document.pop(name, None)
    try:
        return orjson.dumps(document, default=_plain).decode()
    except TypeError:  # what only the standard library writes: integers of over 64 bits, keys that are no texts
        return _encoder.encode(document)


def decode(kind: type[A], text: str, version: int | None = None, **more: object) -> A:
    """Return the aggregate of its JSON, with fields that are not part of it.

    Missing fields, added in a later version, get their defaults.
    """
    reader = _reader(cast("Hashable", kind))
    assert reader is not None
    item = reader({**_parse(text), **more} if more else _parse(text))
    if version is not None:
        item.version = version
    return cast("A", item)


def _parse(text: str) -> dict[str, Any]:
    if _LONG_NUMBER.search(text) is None:
        try:
            return cast("dict[str, Any]", orjson.loads(text))
        except orjson.JSONDecodeError:  # half of a surrogate pair
            pass
    return cast("dict[str, Any]", json.loads(text))


def _plain(value: Any) -> Any:
    """Return a value as something the JSON encoder knows."""
    if (take := _taker(cast("Hashable", type(value)))) is not None:
        return take(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not stored")


_encoder = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_plain)


@cache
def _taker(kind: Hashable) -> Callable[[Any], dict[str, Any]] | None:
    """Return a function that takes the fields of a dataclass with two or more; None for another type."""
    if not is_dataclass(kind):
        return None
    names = tuple(field.name for field in fields(kind))
    values = attrgetter(*names)
    return lambda item: dict(zip(names, values(item), strict=True))


@cache
def _reader(kind: Hashable) -> Reader | None:
    """Return the reader of a declared type; None if JSON has the value as it is."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _dataclass_reader(cast("type[Any]", kind))
    if origin in (types.UnionType, typing.Union):
        inner = _reader(next(part for part in arguments if part is not type(None)))
        return None if inner is None else lambda value: None if value is None else inner(value)
    if origin in (tuple, list, set, frozenset):
        return _collection_reader(cast("Callable[[Any], Any]", origin), _reader(arguments[0]))
    if origin in (dict, Mapping):
        item = _reader(arguments[1])
        return None if item is None else lambda value: {key: item(part) for key, part in value.items()}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {str(member): member for member in kind}.__getitem__
    return datetime.fromisoformat if kind is datetime else None


def _collection_reader(collect: Callable[[Any], Any], item: Reader | None) -> Reader | None:
    if item is None:
        return None if collect is list else collect
    if collect is list:
        return lambda value: [item(part) for part in value]
    return lambda value: collect(map(item, value))


def _dataclass_reader(kind: type[Any]) -> Reader:
    hints = typing.get_type_hints(kind)
    known = dict.fromkeys(field.name for field in fields(kind) if field.name != _VERSION_FIELD).keys()
    readers = [(field.name, reader) for field in fields(kind) if (reader := _reader(hints[field.name]))]
    required = frozenset(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)

    def read(document: Any) -> Any:
        names = document.keys()
        if names != known:  # written by another version: fields may be missing or unknown
            if not required <= names:
                raise KeyError(f"{kind.__name__} without {', '.join(sorted(required - names))}")
            document = {name: value for name, value in document.items() if name in known}
        for name, reader in readers:
            if name in document:
                document[name] = reader(document[name])
        return kind(**document)

    return read
