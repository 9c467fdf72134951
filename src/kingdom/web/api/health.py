"""Whether it lives, whether it can work, how it is: for programs that watch, and for pages that begin."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import Field

from kingdom import __version__
from kingdom.bus import BusError
from kingdom.bus.metrics import Metrics
from kingdom.court.environment import user_name
from kingdom.court.metrics import CourtMetrics
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiError, ApiModel, Failed, Ok, ok
from kingdom.web.security import AUTH_SCOPE_KEY, csrf_token
from kingdom.web.views.court import HealthState, RoleState, court_overview

_READY_SECONDS: Final = 5.0  # seconds for a store to answer
log = logging.getLogger("kingdom.web")
router = APIRouter(tags=["health"])


class Alive(ApiModel):
    """The server answers."""

    status: Literal["alive"] = "alive"


class Ready(ApiModel):
    """Everything the server needs answers."""

    status: Literal["ready"] = "ready"
    checked: list[str] = Field(examples=[["workflow store", "court bus", "live events"]])


class SessionInfo(ApiModel):
    """Who asks, and what a page needs to begin."""

    csrf_token: str = Field(description="Send it as `X-CSRF-Token` with everything that changes something.")
    identity: Literal["bearer", "session"] = Field(description="By token, or by cookie.")
    user: str = Field(description="Whom the server acts for.", examples=["ada"])
    version: str = Field(examples=["0.1.0"])
    root: str = Field(description="The folder that is served.")
    court: bool = Field(description="Whether it is the home of a court.")
    locale: str = Field(examples=["en"])


class HealthInfo(ApiModel):
    """How the court is, and whether workflows are worked on from here."""

    level: str = Field(description="green, yellow, orange or red", examples=["green"])
    reason: str
    court: bool = Field(description="Whether there is a court; without one there are no roles.")
    running: bool = Field(description="Whether the court is up.")
    roles: list[RoleState]
    workflow_engine: bool = Field(description="Whether this server is the engine of the workflows.")


@router.get("/healthz", operation_id="checkAlive", summary="Is the server alive?")
async def check_alive() -> Ok[Alive]:
    """Answers as long as the process does. Needs no token."""
    return ok(Alive())


@router.get(
    "/readyz",
    operation_id="checkReady",
    summary="Can the server work?",
    responses={503: {"model": Failed, "description": "Not all of it answers: details say what"}},
)
async def check_ready(context: Context) -> Ok[Ready]:
    """Asks the store, the buses and the feed of live events. Needs no token, and gives no details away."""
    checks: dict[str, Awaitable[Any]] = {
        "workflow store": context.parts.store.events(None, 0, 1),
        **{f"{name} bus": bus.depth() for name, bus in context.buses().items()},
    }
    answers = await asyncio.gather(
        *(asyncio.wait_for(one, _READY_SECONDS) for one in checks.values()), return_exceptions=True
    )
    reasons = []
    for name, answer in zip(checks, answers, strict=True):
        if isinstance(answer, BaseException):
            log.warning("not ready: the %s does not answer: %s", name, answer)
            reasons.append(f"the {name} does not answer")
    if trouble := context.live.trouble():
        log.warning("not ready: live events stand still: %s", trouble)
        reasons.append("live events stand still")
    if reasons:
        raise ApiError(503, "SYS_NOT_READY", "the server cannot work now: its log says why", reasons)
    return ok(Ready(checked=[*checks, "live events"]))


@router.get("/metrics", operation_id="readMetrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def read_metrics(context: Context) -> PlainTextResponse:
    """The court (roles, queues, soldiers, health, cost) and the depth of the buses, in Prometheus' text form."""
    watching = context.keep(_MetricsSampler, lambda: _MetricsSampler(context))
    await watching.sample()
    return PlainTextResponse(generate_latest(watching.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/api/session", operation_id="readSession", summary="Who am I here?")
async def read_session(context: Context, request: Request) -> Ok[SessionInfo]:
    """What a page needs to begin: above all the token against forged requests."""
    return ok(
        SessionInfo(
            csrf_token=csrf_token(context.token),
            identity=request.scope[AUTH_SCOPE_KEY],
            user=user_name(),
            version=__version__,
            root=str(context.root),
            court=context.services is not None,
            locale=context.settings.locale,
        )
    )


@router.get("/api/health", operation_id="readHealth", summary="How is the court?")
async def read_health(context: Context) -> Ok[HealthInfo]:
    """The level the chamberlain sees, and every role."""
    engine = context.control.is_engine
    if context.services is None:
        state, roles, running = HealthState(level="green", reason=""), [], False
    else:
        seen = await court_overview(context)
        state, roles, running = seen.health, seen.roles, seen.running
    return ok(
        HealthInfo(
            level=state.level,
            reason=state.reason,
            court=context.services is not None,
            running=running,
            roles=roles,
            workflow_engine=engine,
        )
    )


class _MetricsSampler:
    """What is scraped, kept between two scrapes: counters of the bus count on."""

    def __init__(self, context: WebContext) -> None:
        self.registry = CollectorRegistry()
        self._buses = Metrics()
        self._buses.watch(*context.buses().values())
        self._buses.register(self.registry)
        self._court = None if context.services is None else CourtMetrics(context.services)
        if self._court is not None:
            self.registry.register(self._court)

    async def sample(self) -> None:
        try:
            await self._buses.sample()
        except BusError as error:  # its gauges are absent then, which a watcher notices
            log.warning("the depth of a bus cannot be read: %s", error)
        if self._court is not None:
            await self._court.sample()
