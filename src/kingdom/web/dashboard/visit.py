"""A request to a page: the context, and the visitor's language and theme."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kingdom.web.acting import Act, acting, check_may, record_act
from kingdom.web.dashboard.words import Translations, translations
from kingdom.web.locales import preferred_locale
from kingdom.web.security.roles import OWNER, Person, role_of

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.web.context import WebContext
    from kingdom.web.dashboard.refresh import SharedReads

Theme: TypeAlias = Literal["auto", "light", "dark"]
THEMES: Final[tuple[Theme, ...]] = ("auto", "light", "dark")
THEME_COOKIE: Final = "kingdom_theme"


@dataclass(frozen=True, slots=True)
class Visit:
    """What every page receives."""

    context: WebContext
    shared: SharedReads
    """Reads shared by all visitors."""
    locale: str = "en"
    theme: Theme = "auto"
    path: str = "/"
    """Path and query of the page."""
    person: Person = OWNER
    """Who visits."""

    def may(self, operation: str) -> bool:
        """Return whether the visitor's role allows an operation of the API. Controls of others are not offered."""
        return self.person.may(operation)

    def needs_role(self, operation: str) -> str:
        """Say which role an operation needs, that the visitor does not have."""
        needed = self.words(f"access.{role_of(operation)}")
        return self.words("access.needed", role=needed, yours=self.words(f"access.{self.person.role}"))

    @asynccontextmanager
    async def acts(self, operation: str, subject: str = "", *, workflow_id: str = "") -> AsyncIterator[None]:
        """Do something inside the block as the visitor, and record it when it succeeds.

        Raises :class:`kingdom.web.envelope.ApiError` if the visitor may not do it, or their access ended.
        """
        check_may(self.context, self.person, operation)
        act = Act(self.person, subject=subject or workflow_id, workflow_id=workflow_id)
        with acting(act):
            yield
            await record_act(self.context, act, operation)

    @property
    def words(self) -> Translations:
        """The texts in the visitor's language: ``visit.words("task.title")``."""
        return translations(self.locale)

    @property
    def court(self) -> Services:
        """The court's services. Raises :class:`kingdom.web.envelope.ApiError` if there is no court."""
        return self.context.court

    @property
    def dark(self) -> bool | None:
        """Whether the page is dark; None: use the system's setting."""
        return {"auto": None, "light": False, "dark": True}[self.theme]


current_visit: ContextVar[Visit] = ContextVar("kingdom_visit")
"""The visit of the current request."""


def preferred_settings(cookies: Mapping[str, str], languages: str, default: str) -> tuple[str, Theme]:
    """Return language and theme: from cookies, else the best match of ``Accept-Language``, else the default."""
    theme = cookies.get(THEME_COOKIE, "auto")
    return preferred_locale(cookies, languages, default), theme if theme in THEMES else "auto"
