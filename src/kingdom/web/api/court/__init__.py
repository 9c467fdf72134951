"""The court: events, tasks, messages, questions, generals, figures, the bus, and where webhooks arrive."""

from __future__ import annotations

from fastapi import APIRouter

from kingdom.web.api.court import bus, court, events, figures, generals, hooks, messages, questions, tasks

ROUTERS: tuple[APIRouter, ...] = (
    court.router,
    events.router,
    tasks.router,
    messages.router,
    questions.router,
    generals.router,
    figures.router,
    bus.router,
    hooks.router,
)
