"""Liveness, readiness, metrics, session and health endpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import Field

from kingdom import __version__
from kingdom.bus import BusError
from kingdom.bus.metrics import Metrics
from kingdom.court.environment import user_name
from kingdom.court.metrics import CourtMetrics
from kingdom.court.overview import HealthState, RoleState
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiError, ApiModel, Failed, Ok, ok
from kingdom.web.security import AUTH_SCOPE_KEY, PERSON_SCOPE_KEY, csrf_token
from kingdom.web.security.credentials import cookie_name
from kingdom.web.security.roles import Person, Role
from kingdom.web.views.court import court_overview

_READY_SECONDS: Final = 5.0  # for a store or bus to respond
log = logging.getLogger("kingdom.web")
router = APIRouter(tags=["health"])


class Alive(ApiModel):
    """The server is alive."""

    status: Literal["alive"] = "alive"


class Ready(ApiModel):
    """The server is ready: everything it depends on responds."""

    status: Literal["ready"] = "ready"
    checked: list[str] = Field(examples=[["workflow store", "court bus", "live events"]])


class SessionInfo(ApiModel):
    """The session of the caller."""

    csrf_token: str = Field(description="Send it as `X-CSRF-Token` with every request that changes something.")
    identity: Literal["bearer", "session"] = Field(
        description="How the request was authenticated: by token, or by cookie."
    )
    name: str = Field(
        description="Who you are: the name of your token; `owner` with the home's own token.", examples=["ann"]
    )
    role: Role = Field(description="What you may do: `look`, `answer`, `operate` or `own`.", examples=["operate"])
    user: str = Field(description="The user the server acts for.", examples=["ada"])
    version: str = Field(examples=["0.1.0"])
    root: str = Field(description="The folder that the server serves.")
    court: bool = Field(description="Whether it is the home of a court.")
    locale: str = Field(examples=["en"])


class HealthInfo(ApiModel):
    """Health of the court, and whether this server runs the workflow engine."""

    level: str = Field(description="green, yellow, orange or red", examples=["green"])
    reason: str
    court: bool = Field(description="Whether the folder has a court; without one there are no roles.")
    running: bool = Field(description="Whether the court is running.")
    roles: list[RoleState]
    workflow_engine: bool = Field(description="Whether this server runs the workflow engine.")


@router.get("/healthz", operation_id="checkAlive", summary="Check liveness")
async def check_alive() -> Ok[Alive]:
    """Responds while the process runs. Needs no token."""
    return ok(Alive())


@router.get(
    "/readyz",
    operation_id="checkReady",
    summary="Check readiness",
    responses={503: {"model": Failed, "description": "A dependency does not respond; details name it"}},
)
async def check_ready(context: Context) -> Ok[Ready]:
    """Checks the store, the buses and the live feed. Needs no token and reveals no details."""
    checks: dict[str, Awaitable[Any]] = {
        "workflow store": context.parts.store.events(None, 0, 1),
        **{f"{name} bus": bus.depth() for name, bus in context.buses().items()},
    }
    answers = await asyncio.gather(*(_answer_soon(one) for one in checks.values()), return_exceptions=True)
    reasons = []
    for name, answer in zip(checks, answers, strict=True):
        if isinstance(answer, BaseException):
            log.warning("not ready: the %s does not respond: %s", name, answer)
            reasons.append(f"the {name} does not respond")
    if trouble := context.live.trouble():
        log.warning("not ready: the live feed has stopped: %s", trouble)
        reasons.append("the live feed has stopped")
    if reasons:
        raise ApiError(503, "SYS_NOT_READY", "the server is not ready; see its log", reasons)
    return ok(Ready(checked=[*checks, "live events"]))


async def _answer_soon(check: Awaitable[Any]) -> None:
    async with asyncio.timeout(_READY_SECONDS):
        await check


@router.get("/metrics", operation_id="readMetrics", summary="Get Prometheus metrics", response_class=PlainTextResponse)
async def read_metrics(context: Context) -> PlainTextResponse:
    """Metrics of the court (roles, queues, soldiers, health, cost) and bus depths, in Prometheus text format."""
    watching = context.cached(_MetricsSampler, lambda: _MetricsSampler(context))
    await watching.sample()
    return PlainTextResponse(generate_latest(watching.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/api/session", operation_id="readSession", summary="Get the session")
async def read_session(context: Context, request: Request) -> Ok[SessionInfo]:
    """Session data for a page, including the CSRF token."""
    person: Person = request.scope[PERSON_SCOPE_KEY]
    return ok(
        SessionInfo(
            csrf_token=csrf_token(context.token, person.key),
            identity=request.scope[AUTH_SCOPE_KEY],
            name=person.name,
            role=person.role,
            user=user_name(),
            version=__version__,
            root=str(context.root),
            court=context.services is not None,
            locale=context.settings.locale,
        )
    )


class LoggedOut(ApiModel):
    """The browser is logged out."""

    logged_out: Literal[True] = True


@router.delete("/api/session", operation_id="logOut", summary="Log a browser out")
async def delete_session(context: Context, request: Request, response: Response) -> Ok[LoggedOut]:
    """End the session of this browser. Others stay logged in: `kingdom web --new-token` logs all out."""
    person: Person = request.scope[PERSON_SCOPE_KEY]
    await asyncio.to_thread(context.sessions.end, person.session)
    response.delete_cookie(cookie_name(context.token), path="/", httponly=True, samesite="strict")
    context.connections.end_revoked()
    return ok(LoggedOut())


@router.get("/api/health", operation_id="readHealth", summary="Get the health of the court")
async def read_health(context: Context) -> Ok[HealthInfo]:
    """The health level set by the chamberlain, and all roles."""
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
    """The metrics registry. It is kept between scrapes so that bus counters keep counting."""

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
        except BusError as error:  # its gauges are absent then, which monitoring notices
            log.warning("cannot read the depth of a bus: %s", error)
        if self._court is not None:
            await self._court.sample()
