"""What is configured, and where each value comes from: a file in ``config/``, or the default. Secrets are hidden."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field

from kingdom.base.text import looks_secret
from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.chamberlain.config import FILE as CHAMBERLAIN_FILE
from kingdom.court.chamberlain.config import ChamberlainConfig
from kingdom.court.config import SystemConfig
from kingdom.court.config_parts import ConfigSection
from kingdom.court.envoy.config import ENVOY_FILE, EnvoyConfig
from kingdom.court.problems import API_CONFIG
from kingdom.court.schemas import setting_descriptions
from kingdom.court.sentinel.config import SENTINEL_FILE, SentinelConfig
from kingdom.court.trust.config import TRUST_FILE, TrustConfig
from kingdom.gitops.names import hide_password

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.court.home import Home

SettingSource: TypeAlias = Literal["file", "default"]
HIDDEN: Final = "***"
_FILES: Final[dict[str, type[ConfigSection]]] = {
    "system.yaml": SystemConfig,
    SENTINEL_FILE: SentinelConfig,
    ENVOY_FILE: EnvoyConfig,
    CHAMBERLAIN_FILE: ChamberlainConfig,
    TRUST_FILE: TrustConfig,
}
_SECRET_KEYS: Final = ("env", "headers")  # mappings whose values may be secret


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    key: Annotated[str, Field(examples=["budget.daily_usd"])]
    value: Annotated[str, Field(description="The value as JSON; what may be secret is `***`.", examples=["10.0"])]
    source: SettingSource
    description: str


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The settings of one file, in the order of the reference."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    name: Annotated[str, Field(examples=["system.yaml"])]
    path: Annotated[str, Field(examples=["/home/ann/court/config/system.yaml"])]
    exists: bool
    problems: Annotated[list[str], Field(description="Why it cannot be used; then there are no settings.")]
    settings: list[Setting] = field(default_factory=list)


def read_settings(home: Home) -> list[SettingsFile]:
    """Return the settings of all files. A file that is missing has defaults only."""
    return [_read(home, name, model) for name, model in _FILES.items()]


def _read(home: Home, name: str, model: type[ConfigSection]) -> SettingsFile:
    path = home.config / name
    exists = path.exists()
    try:
        section = load_yaml(path, model, {"tiers": []}) if exists else model()
    except YamlProblem as error:
        return SettingsFile(name, str(path), exists, error.problems)
    return SettingsFile(name, str(path), exists, [], list(_settings(section, "", given=True)))


def _settings(section: ConfigSection, prefix: str, *, given: bool) -> Iterator[Setting]:
    """Yield the settings of a section and of those in it; ``given``: the section is in the file."""
    described = setting_descriptions(type(section))
    shown = section.model_dump(mode="json")
    for name in type(section).model_fields:
        value, key = getattr(section, name), f"{prefix}{name}"
        named = given and name in section.model_fields_set
        if isinstance(value, ConfigSection):
            yield from _settings(value, f"{key}.", given=named)
        else:
            source: SettingSource = "file" if named else "default"
            text = json.dumps(_masked(shown[name], name), ensure_ascii=False)
            yield Setting(key, text, source, described.get(name, ""))


def _masked(value: Any, key: str = "") -> Any:
    """Hide what is, or may be, secret."""
    if isinstance(value, str):
        return HIDDEN if looks_secret(value) else hide_password(value)
    if isinstance(value, dict):
        if key in _SECRET_KEYS:
            return dict.fromkeys(value, HIDDEN)
        return {name: _masked(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, key) for item in value]
    return value
