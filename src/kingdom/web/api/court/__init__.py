"""The court: events, tasks, messages, questions, generals, the bus, health and metrics, webhooks."""

from __future__ import annotations

from fastapi import APIRouter

ROUTERS: tuple[APIRouter, ...] = ()
