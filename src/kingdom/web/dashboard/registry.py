"""The pages there are. A module of pages puts them here by ``@page``; the mounting makes them reachable."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

from nicegui import ui

from kingdom.web.dashboard.visit import current

Builder: TypeAlias = Callable[..., Awaitable[None]]
_PATIENCE: Final = 30.0  # seconds a page may take to be built before NiceGUI gives it up


class LocalPage(ui.page):
    """A page in the theme and the language of the visitor, from its first byte."""

    def resolve_dark(self) -> bool | None:
        """As the visitor chose."""
        visit = current.get(None)
        return None if visit is None else visit.dark

    def resolve_language(self) -> Any:
        """For screen readers and for the words of Quasar itself."""
        visit = current.get(None)
        return {"en": "en-US", "ko": "ko-KR"}[visit.locale] if visit else "en-US"


def page(path: str, *, title: str, nav: str, court: bool = False) -> Callable[[Builder], Builder]:
    """Make ``async def build(visit, …)`` the page of a path; further parameters come from the path and the query.

    ``title`` and ``nav`` are keys: of the words, and of the entry of the navigation it belongs to. With ``court``
    the page is only built where there is a court; elsewhere the visitor is told how to found one.
    """

    def register(build: Builder) -> Builder:
        signature = inspect.signature(build, eval_str=True)
        asked = [parameter for name, parameter in signature.parameters.items() if name != "visit"]

        @functools.wraps(build)
        async def built(**arguments: Any) -> None:
            from kingdom.web.dashboard.shell import framed

            await framed(current.get(), build, arguments, title=title, nav=nav, court=court)

        cast(Any, built).__signature__ = inspect.Signature(asked)
        LocalPage(path, response_timeout=_PATIENCE)(built)
        return build

    return register
