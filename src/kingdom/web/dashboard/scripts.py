"""The scripts of a page and its Content-Security-Policy.

The policy lets only scripts run that carry the number of this answer. NiceGUI's template knows nothing of it, so the
number is put into the source of the template: into the script tags that stand there, never into what a page puts in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from jinja2 import BaseLoader
from nicegui.client import templates

from kingdom.web.security import nonce

if TYPE_CHECKING:
    from jinja2 import Environment

_TAG: Final = "<script"


class _Nonced(BaseLoader):
    """Another loader's templates, with the number in their script tags."""

    def __init__(self, inner: BaseLoader) -> None:
        self._inner = inner

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, Callable[[], bool] | None]:
        source, path, fresh = self._inner.get_source(environment, template)
        return source.replace(_TAG, f'{_TAG} nonce="{{{{ kingdom_nonce() }}}}"'), path, fresh


def carry_nonce() -> None:
    """Have every page of this process carry the number of its answer. Doing it twice does it once."""
    environment = templates.env
    if environment.loader is not None and not isinstance(environment.loader, _Nonced):
        environment.loader = _Nonced(environment.loader)
        environment.globals["kingdom_nonce"] = nonce
        if environment.cache is not None:
            environment.cache.clear()
