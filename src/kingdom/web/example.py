"""An example of what a JSON schema describes, from the examples of its parts."""

from __future__ import annotations

from typing import Any, Final

_DEEPEST: Final = 12
_BY_TYPE: Final = {"string": "…", "integer": 1, "number": 1.0, "boolean": False, "null": None}
_BY_FORMAT: Final = {"date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "binary": ""}


class Examples:
    """Makes examples; ``components`` are the schemas that others refer to by name."""

    def __init__(self, components: dict[str, Any]) -> None:
        self._components = components

    def of(self, schema: dict[str, Any], deep: int = 0) -> Any:
        """One example."""
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            return self.of({**self._components[name], **{k: v for k, v in schema.items() if k == "examples"}}, deep)
        for key in ("example", "const", "default"):
            if key in schema and not (key == "default" and schema.get("examples")):
                return schema[key]
        if schema.get("examples"):
            return schema["examples"][0]
        if "enum" in schema:
            return schema["enum"][0]
        return self._by_kind(schema, deep)

    def _by_kind(self, schema: dict[str, Any], deep: int) -> Any:
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                parts = [part for part in schema[key] if part.get("type") != "null"]
                return self.of(parts[0], deep) if parts else None
        kind = schema.get("type")
        if kind == "array":
            return [] if deep > _DEEPEST else [self.of(schema.get("items", {}), deep + 1)]
        if kind == "object" or "properties" in schema:
            return self._object(schema, deep)
        return _BY_FORMAT.get(schema.get("format", ""), _BY_TYPE.get(str(kind), {}))

    def _object(self, schema: dict[str, Any], deep: int) -> dict[str, Any]:
        if deep > _DEEPEST:
            return {}
        return {name: self.of(part, deep + 1) for name, part in schema.get("properties", {}).items()}
