"""The configuration of a court."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.errors import InvalidConfig
from kingdom.court.home import MARKER

if TYPE_CHECKING:
    from kingdom.court.home import Home


# The configuration of a court: YAML files under ``config/``, each read into a model that knows its keys and limits.
#
# Secrets never stand in these files: a file names the environment variable that holds one.


# What all parts of the configuration share.


EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$", max_length=100)]
"""The name of an environment variable."""


class ConfigSection(BaseModel):
    """A part of a configuration file: unknown keys and wrong types are mistakes, and nobody changes it later.

    Types are strict, since YAML has its own: ``concurrency: yes`` is not 1.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ShortFormSection(ConfigSection):
    """A section that may also be written as one text, the value of the key that ``short_form`` names."""

    short_form: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: Any) -> Any:
        return {cls.short_form: value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        short = schema["properties"][cls.short_form]
        return {"anyOf": [{**short, "description": f"In short: only {cls.short_form!r}."}, schema]}


def check_timezone(name: str) -> str:
    """Return the name of a time zone; raise ValueError when there is no such zone."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError; a folder's name an OSError
        raise ValueError(
            f"no time zone {name!r:.80} is known on this machine: use a name as Europe/Berlin, Asia/Seoul or UTC"
        ) from None
    return name


TimeZone = Annotated[str, AfterValidator(check_timezone)]
"""The name of a time zone, as in the IANA database."""


# ``config/system.yaml``: what holds for the whole court.


Locale = Literal["en", "ko"]
Host = Literal["process", "tmux"]
Usd = Annotated[float, Field(ge=0)]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:\-\[\]]+$", max_length=255)]
EngineName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_\-]*$", max_length=60)]


class QueueSection(ConfigSection):
    """Where the queues are."""

    transport: str | None = None
    """The URL of a database, ``postgresql://…`` or ``sqlite:///…``; none: files below ``queue/``."""
    transport_env: EnvName | None = None
    """Or the name of the environment variable that holds the URL, when there is a password in it."""

    @field_validator("transport")
    @classmethod
    def _without_password(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ValueError(f"not a URL ({error})") from None
        if not parts.scheme:
            raise ValueError("not a URL: sqlite:///file.db or postgresql://host/database")
        if parts.scheme == "files":
            raise ValueError("queues that are files lie in queue/ of the home: leave it out, or name a database")
        if parts.scheme == "memory":
            raise ValueError("each process would have queues of its own: leave it out, or name a database")
        if parts.password:
            raise ValueError(
                "a password does not belong in a file: put the URL in an environment variable "
                "and name it here as transport_env"
            )
        return url

    @model_validator(mode="after")
    def _one_of_them(self) -> QueueSection:
        if self.transport is not None and self.transport_env is not None:
            raise ValueError("give transport or transport_env, not both")
        return self


class ConcurrencySection(ConfigSection):
    """How much happens at once."""

    max_soldiers: int = Field(default=3, ge=1, le=1000)
    """Soldiers of all generals together. A general's own limit is in its manifest."""


class QuestionSection(ConfigSection):
    """Questions to people."""

    deadline_hours: float = Field(default=24.0, gt=0, le=24 * 365)
    """How long a question waits for its answer, unless the soldier says otherwise."""


class RetriesSection(ConfigSection):
    """What is tried again by the king. A general's own retries are in its manifest."""

    killed: int = Field(default=2, ge=0, le=100)
    """How often a task whose soldier was killed from outside is given out again."""


class BudgetSection(ConfigSection):
    """What the court may spend. None: no limit."""

    daily_usd: Usd | None = None
    monthly_usd: Usd | None = None
    daily_tokens: int | None = Field(default=None, ge=0)
    warning_percent: float = Field(default=80.0, gt=0, le=100)
    """From here on people are warned."""


class ReposSection(ConfigSection):
    """Where repositories come from."""

    base_url: str = Field(default="https://github.com/", min_length=1)
    """What stands before ``owner/name`` when a repository is cloned: another host, or a folder of this machine."""


EngineEnv = Annotated[
    Annotated[list[EnvName], Tag("names")] | Annotated[dict[EnvName, str], Tag("values")],
    Discriminator(
        lambda given: {list: "names", dict: "values"}.get(type(given)),
        custom_error_type="engine_env",
        custom_error_message="must be a list of names [NAME, …] or a mapping {NAME: value}",
    ),
]


class EngineSection(ConfigSection):
    """An engine on this machine."""

    path: str | None = Field(default=None, min_length=1)
    """Its program, when it is not the one on the PATH."""
    args: list[str] = Field(default_factory=list)
    """Further arguments for it."""
    env: EngineEnv = Field(default_factory=list)
    """Names of environment variables passed on to it, for every general; or names with values that are no secrets."""
    model: str | None = Field(default=None, min_length=1)
    """The model for generals whose manifest names none."""


class WebSection(ConfigSection):
    """The web server: the dashboard, the API, live events."""

    enabled: bool = True
    """Whether it is part of ``kingdom up``. ``KINGDOM_WEB=off`` in the environment switches it off as well."""
    host: str = Field(default="127.0.0.1", max_length=255)
    """The address it listens on. Any but loopback is open to the network, and needs ``allowed_hosts``."""
    port: int = Field(default=8700, ge=0, le=65535)
    """0 takes one that is free."""
    allowed_hosts: list[HostName] = Field(default_factory=list, max_length=100)
    """Further names it may be called by, as behind a proxy: what stands in the address bar, without the port."""
    requests_per_second: float = Field(default=50.0, gt=0, le=100_000)
    """Of one token on average; four times as many may come at once."""
    idle_seconds: float = Field(default=60.0, ge=1, le=24 * 3600)
    """A live connection whose client says nothing for that long is closed."""


class SystemConfig(ConfigSection):
    """The whole file."""

    name: str = Field(default="kingdom", min_length=1, max_length=100)
    """What the court calls itself in messages."""
    locale: Locale = "en"
    """The language of messages."""
    timezone: TimeZone = "UTC"
    """For days (budget, reports, cleaning) and for schedules that name none."""
    channel: str = ""
    """Where messages go when nothing says otherwise."""
    host: Host = "process"
    """What soldiers run in: a process of their own, or a tmux session that can be attached to."""
    queue: QueueSection = Field(default_factory=QueueSection)
    concurrency: ConcurrencySection = Field(default_factory=ConcurrencySection)
    question: QuestionSection = Field(default_factory=QuestionSection)
    retries: RetriesSection = Field(default_factory=RetriesSection)
    budget: BudgetSection = Field(default_factory=BudgetSection)
    repos: ReposSection = Field(default_factory=ReposSection)
    engines: dict[EngineName, EngineSection] = Field(default_factory=dict)
    web: WebSection = Field(default_factory=WebSection)

    def queue_url(self, home: Home) -> str:
        """The URL of the bus the queues are on."""
        if self.queue.transport_env is not None:
            if url := os.environ.get(self.queue.transport_env):
                return url
            raise InvalidConfig(
                f"{home.root / MARKER}: queue.transport_env names {self.queue.transport_env}, "
                "but there is no such environment variable: set it to the URL of the bus"
            )
        return self.queue.transport or home.queue_url


def load_system(home: Home) -> SystemConfig:
    """Read ``config/system.yaml``. Raises :class:`InvalidConfig` with every problem, its file and its line."""
    try:
        return load_yaml(home.root / MARKER, SystemConfig)
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None
