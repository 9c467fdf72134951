"""The section ``web`` of ``config/system.yaml``."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from kingdom.base.forms import form
from kingdom.court.config_parts import ConfigSection, EnvName, HostName

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def _checked_url(text: str) -> str:
    """Return a URL. Without TLS it must be that of this machine."""
    parts = urlsplit(text)
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK_NAMES)
    if not secure or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{text!r:.120} must be a URL such as https://login.example.com, without ? and #")
    return text


Url = Annotated[str, StringConstraints(max_length=500), AfterValidator(_checked_url)]
ClaimName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[A-Za-z0-9_.:/\-]+$", "the name of a claim, such as email or groups"), max_length=200
    ),
]
AccessRole = Literal["look", "answer", "operate", "own"]


class AccountRule(ConfigSection):
    """Which accounts have a role. Give ``email``, or ``claim`` and ``value``."""

    role: AccessRole
    """What they may do: look, answer, operate, own."""
    email: str | None = Field(default=None, min_length=3, max_length=320)
    """An address, or ``*@example.com`` for all of a domain."""
    claim: ClaimName | None = None
    """A claim of the ID token or of the user info, such as ``groups``."""
    value: str | None = Field(default=None, min_length=1, max_length=500)
    """What the claim is, or contains."""

    @model_validator(mode="after")
    def _check_condition(self) -> Self:
        by_claim = self.claim is not None and self.value is not None
        if (self.email is not None) is by_claim or (self.claim is None) is not (self.value is None):
            raise ValueError("give email, or claim and value")
        if self.email is not None and (self.email.count("@") != 1 or "*" in self.email.removeprefix("*@")):
            raise ValueError(f"{self.email!r:.120} must be an address, or *@ and a domain")
        return self


class OidcSection(ConfigSection):
    """Log-in with accounts of an OpenID Connect provider, beside tokens."""

    issuer: Url
    """The provider: the URL under which ``/.well-known/openid-configuration`` is found."""
    client_id: str = Field(min_length=1, max_length=500)
    """The id that the provider gave this server."""
    client_secret_env: EnvName | None = None
    """The environment variable that holds the client secret. None: a public client, with PKCE alone."""
    label: str = Field(default="", max_length=60)
    """What the button says: *Log in with …*. Empty: the host name of the issuer."""
    public_url: Url | None = None
    """The address of the dashboard in the browser, registered at the provider with ``/login/callback`` appended.
    None: the address of the request."""
    scopes: list[Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$", max_length=200)]] = Field(
        default_factory=lambda: ["openid", "email", "profile"], max_length=30
    )
    """What is asked of the provider. Some need a further scope for groups."""
    name_claim: ClaimName = "email"
    """The claim that signs what a person does. People must not be able to choose it themselves."""
    roles: list[AccountRule] = Field(default_factory=list, max_length=1000)
    """Who has which role. If several apply, the strongest counts."""
    default_role: AccessRole | None = None
    """The role of accounts to which no rule applies. None: they may not log in."""
    session_hours: float = Field(default=12.0, gt=0, le=24 * 31)
    """How long a browser stays logged in. Changes at the provider count from the next log-in on."""

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        if not self.roles and self.default_role is None:
            raise ValueError("give roles or default_role: otherwise nobody may log in")
        if "openid" not in self.scopes:
            raise ValueError("scopes must contain openid")
        return self


class WebSection(ConfigSection):
    """The web server: the dashboard, the API, live events."""

    enabled: bool = True
    """Whether it is part of ``kingdom up``. ``KINGDOM_WEB=off`` in the environment disables it as well."""
    host: str = Field(default="127.0.0.1", max_length=255)
    """The address it listens on. Any address but loopback is open to the network, and needs ``allowed_hosts``."""
    port: int = Field(default=8700, ge=0, le=65535)
    """0 chooses a free port."""
    allowed_hosts: list[HostName] = Field(default_factory=list, max_length=100)
    """Additional host names, for example behind a proxy: the name in the address bar, without the port."""
    requests_per_second: float = Field(default=50.0, gt=0, le=100_000)
    """The average rate of one token; bursts of four times as many are allowed."""
    idle_seconds: float = Field(default=60.0, ge=1, le=24 * 3600)
    """A live connection is closed when its client is silent for this long."""
    oidc: OidcSection | None = None
    """Log-in with your company's accounts. None: with tokens only."""
