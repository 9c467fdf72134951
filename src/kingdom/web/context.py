"""What every route and every page of the web is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from kingdom.web.envelope import ApiError

if TYPE_CHECKING:
    from kingdom.bus import EventBus
    from kingdom.court.loop import Services
    from kingdom.web.bootstrap import WorkflowControl
    from kingdom.web.live.hub import Hub
    from kingdom.web.settings import WebSettings
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.home import WorkflowHome

T = TypeVar("T")


@dataclass(slots=True)
class WebContext:
    """Made by :func:`kingdom.web.bootstrap.open_context`."""

    root: Path
    """The home of the court, or the folder that has ``workflows/``."""
    settings: WebSettings
    token: str
    place: WorkflowHome
    parts: WorkflowContext
    control: WorkflowControl
    live: Hub
    services: Services | None
    """The court; None where there are workflows only."""
    clock: Callable[[], float]
    _kept: dict[type[Any], Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def court(self) -> Services:
        """The court; raises :class:`ApiError` where there is none."""
        if self.services is None:
            raise ApiError(404, "SYS_NO_COURT", f"{self.root} is not the home of a court: kingdom init {self.root}")
        return self.services

    def keep(self, kind: type[T], make: Callable[[], T]) -> T:
        """What is kept between two looks: the one thing of its kind, made when it is first asked for."""
        if kind not in self._kept:
            self._kept[kind] = make()
        found: T = self._kept[kind]
        return found

    def buses(self) -> dict[str, EventBus]:
        """The buses people look into, by name."""
        found = {"workflow": self.parts.store.bus}
        return found if self.services is None else {"court": self.services.bus, **found}


def context_of(connection: HTTPConnection) -> WebContext:
    """The context of the application a request or WebSocket came to."""
    context: WebContext = connection.app.state.context
    return context


Context: TypeAlias = Annotated[WebContext, Depends(context_of)]
"""For the signature of a route: ``async def route(context: Context)``."""
