"""The context that every route and page receives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from kingdom.web.envelope import ApiError
from kingdom.web.security.revocation import OpenConnections
from kingdom.web.security.sessions import SessionStore
from kingdom.web.security.tokens import TokenStore

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
    """Everything the web server works with. Opened by :func:`kingdom.web.bootstrap.open_context`."""

    root: Path
    """The court's home, or the folder that contains ``workflows/``."""
    settings: WebSettings
    token: str
    place: WorkflowHome
    parts: WorkflowContext
    control: WorkflowControl
    live: Hub
    services: Services | None
    """The court's services; None if the folder has workflows only."""
    clock: Callable[[], float]
    tokens: TokenStore = field(init=False)
    """The named tokens of people."""
    sessions: SessionStore = field(init=False)
    """The browsers that are logged in."""
    connections: OpenConnections = field(init=False)
    _cached: dict[type[Any], Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.tokens = TokenStore(self.root, self.clock)
        self.sessions = SessionStore(self.root, self.tokens, self.clock)
        self.connections = OpenConnections(self.sessions)

    @property
    def court(self) -> Services:
        """Return the court's services. Raises :class:`ApiError` if there is no court."""
        if self.services is None:
            raise ApiError(404, "SYS_NO_COURT", f"{self.root} has no court: create one with kingdom init {self.root}")
        return self.services

    def cached(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return the one object of a type that lives as long as this context; ``make`` creates it on first use."""
        if kind not in self._cached:
            self._cached[kind] = make()
        found: T = self._cached[kind]
        return found

    def buses(self) -> dict[str, EventBus]:
        """Return the buses that the API and the dashboard show, by name."""
        found = {"workflow": self.parts.store.bus}
        return found if self.services is None else {"court": self.services.bus, **found}


def context_of(connection: HTTPConnection) -> WebContext:
    """Return the context of the application that received a request or WebSocket."""
    context: WebContext = connection.app.state.context
    return context


Context: TypeAlias = Annotated[WebContext, Depends(context_of)]
"""Parameter type for routes: ``async def route(context: Context)``."""
