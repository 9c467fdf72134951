"""Accounts of an OpenID Connect provider: who they are here, and which role they have."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from kingdom.court.config_web import AccountRule, OidcSection
from kingdom.web.security.roles import ACCOUNT_PREFIX, ROLES, Person, Role
from kingdom.web.security.tokens import NAME_PATTERN, is_reserved_name

_KEY_CHARS: Final = 16


class LoginRefused(Exception):
    """A log-in that did not succeed. ``reason`` is a key of the texts of the log-in page."""

    def __init__(self, reason: str, status: int = 403, **fields: str) -> None:
        super().__init__(f"{reason}: {fields}" if fields else reason)
        self.reason = reason
        self.status = status
        self.fields = fields


class Accounts:
    """The accounts of a provider, by the configuration."""

    def __init__(self, section: OidcSection) -> None:
        self._section = section
        self.claims: Final = frozenset(
            {section.name_claim, "email", *(rule.claim for rule in section.roles if rule.claim is not None)}
        )
        """The claims that decide who a person is and what they may do."""

    def person(self, claims: Mapping[str, Any]) -> Person:
        """Return who an account is. Raises :class:`LoginRefused` for one that may not log in."""
        name = claims.get(self._section.name_claim)
        if not isinstance(name, str) or not name:
            raise LoginRefused("no-name", claim=self._section.name_claim)
        if claims.get("email_verified") in (False, "false") and self._depends_on_email():
            raise LoginRefused("unverified", name=name)
        if re.fullmatch(NAME_PATTERN, name) is None or is_reserved_name(name):
            raise LoginRefused("bad-name", name=name[:80], claim=self._section.name_claim)
        role = self._role(claims)
        if role is None:
            raise LoginRefused("no-role", name=name)
        identity = f"{self._section.issuer}\n{claims.get('sub')}"
        return Person(name, role, ACCOUNT_PREFIX + hashlib.sha256(identity.encode()).hexdigest()[:_KEY_CHARS])

    def kept(self, claims: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims that are stored with a session: the role is found again whenever the server starts."""
        return {name: claims[name] for name in sorted({*self.claims, "sub", "email_verified"}) if name in claims}

    def _depends_on_email(self) -> bool:
        return self._section.name_claim == "email" or any(rule.email is not None for rule in self._section.roles)

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        found: list[Role] = [rule.role for rule in self._section.roles if _applies(rule, claims)]
        if self._section.default_role is not None:
            found.append(self._section.default_role)
        return max(found, key=ROLES.index, default=None)


def _applies(rule: AccountRule, claims: Mapping[str, Any]) -> bool:
    if rule.email is None:
        value = claims.get(rule.claim or "")
        return rule.value in value if isinstance(value, list) else value == rule.value
    email = claims.get("email")
    if not isinstance(email, str) or email.count("@") != 1:
        return False
    given, wanted = email.casefold(), rule.email.casefold()
    return given.endswith(wanted[1:]) and not given.startswith("@") if wanted.startswith("*@") else given == wanted
