"""JSON Schemas of documents, results and configuration files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.result_model import RawResult
from kingdom.court.chamberlain.config import ChamberlainConfig
from kingdom.court.config import SystemConfig
from kingdom.court.envoy.config import EnvoyConfig
from kingdom.court.models import Event, Message, Result, Task
from kingdom.court.packages.manifest import Manifest
from kingdom.court.sentinel.config import SentinelConfig
from kingdom.court.trust.config import TrustConfig

if TYPE_CHECKING:
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


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, for validation: fields with a default are optional."""
    model = SCHEMAS[name]
    document = model.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"kingdom/{name}.json", **document}


def schema_files() -> dict[str, str]:
    """Return the text of every schema file, by file name."""
    return {f"{name}.json": json.dumps(schema(name), ensure_ascii=False, indent=2) + "\n" for name in SCHEMAS}
