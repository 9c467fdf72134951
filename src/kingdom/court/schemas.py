"""JSON Schemas of documents, results and configuration files."""

from __future__ import annotations

import ast
import inspect
import json
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.result_model import RawResult
from kingdom.court.chamberlain.config import ChamberlainConfig
from kingdom.court.config import SystemConfig
from kingdom.court.config_parts import ConfigSection
from kingdom.court.envoy.config import EnvoyConfig
from kingdom.court.models import Event, Message, Result, Task
from kingdom.court.packages.manifest import Manifest
from kingdom.court.sentinel.config import SentinelConfig
from kingdom.court.trust.config import TrustConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

SCHEMAS: Final[dict[str, type[BaseModel]]] = {
    "event": Event,
    "task": Task,
    "message": Message,
    "result": Result,
    "raw-result": RawResult,
    "manifest": Manifest,
    "system": SystemConfig,
    "chamberlain": ChamberlainConfig,
    "sentinel": SentinelConfig,
    "envoy": EnvoyConfig,
    "trust": TrustConfig,
}
"""The models by the name of their schema file."""


@cache
def setting_descriptions(section: type[ConfigSection]) -> dict[str, str]:
    """Return the strings below the fields of a section, and of those it is derived from, by field.

    pydantic can make them descriptions whenever a class is made, by reading its source: an eighth of a second for each
    process of a court, most of which never shows a description.
    """
    described = {}
    for base in reversed(section.__mro__):
        if issubclass(base, ConfigSection):
            (found,) = ast.parse(inspect.getsource(base)).body
            assert isinstance(found, ast.ClassDef)
            for field, below in pairwise(found.body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        described[name] = inspect.cleandoc(text)
    return described


def _sections(base: type[ConfigSection]) -> Iterator[type[ConfigSection]]:
    for section in base.__subclasses__():
        yield section
        yield from _sections(section)


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, for validation: fields with a default are optional."""
    model = SCHEMAS[name]
    document = model.model_json_schema(mode="validation")
    sections = {section.__name__: section for section in _sections(ConfigSection)}
    for title, part in {**document.get("$defs", {}), model.__name__: document}.items():
        described = setting_descriptions(sections[title]) if title in sections else {}
        for form in (part, *part.get("anyOf", ())):  # a section with a short form is a string, or an object
            properties = form.get("properties", {})
            for field in described.keys() & properties.keys():
                properties[field] = dict(sorted({**properties[field], "description": described[field]}.items()))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"kingdom/{name}.json", **document}


def schema_files() -> dict[str, str]:
    """Return the text of every schema file, by file name."""
    return {f"{name}.json": json.dumps(schema(name), ensure_ascii=False, indent=2) + "\n" for name in SCHEMAS}
