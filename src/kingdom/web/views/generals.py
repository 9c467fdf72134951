"""The generals: their manifests, problems and records; installing, enabling and disabling them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from kingdom.agents.engines import default_engines
from kingdom.court.config import load_system
from kingdom.court.general_record import LATEST_RESULTS, general_record
from kingdom.court.home import check_name
from kingdom.court.init_home import install_shipped, shipped_generals
from kingdom.court.machines.capacity import require_lead
from kingdom.court.packages.disabled import DisabledGenerals, switch_general
from kingdom.court.packages.installed import load_generals
from kingdom.court.packages.installer import check_package, install_package
from kingdom.court.queues import TASKS
from kingdom.web.acting import acts_on
from kingdom.web.envelope import ApiError, ApiModel, not_found
from kingdom.web.views.court_state import court_state
from kingdom.web.views.redaction import json_safe

if TYPE_CHECKING:
    from kingdom.court.document_index import EntryFilter
    from kingdom.court.general_record import GeneralRecord
    from kingdom.court.packages.installed import GeneralPackage
    from kingdom.web.context import WebContext


class GeneralState(ApiModel):
    """A general and its manifest."""

    name: str = Field(examples=["gen-pr"])
    enabled: bool = Field(description="Whether it may start tasks.")
    description: str
    engine: str = Field(examples=["claude"])
    model: str | None
    mode: str = Field(examples=["agent"])
    hears: list[str] = Field(examples=[["github.pr.*"]])
    schedules: dict[str, str] = Field(description="Cron schedules by name.")
    concurrency: int
    timeout_seconds: float
    problems: list[str] = Field(description="Problems; empty: it can be used.")
    manifest: dict[str, Any] | None = Field(description="The manifest; null if it cannot be read.")


async def list_generals(context: WebContext) -> list[GeneralState]:
    """Return all installed generals by name, including those that cannot be used."""
    return await asyncio.to_thread(_generals, context)


async def read_general(context: WebContext, name: str) -> GeneralState:
    """One general."""
    check_name("general", name)
    found = [one for one in await list_generals(context) if one.name == name]
    if not found:
        raise not_found("SYS", "general", name)
    return found[0]


async def read_record(context: WebContext, name: str) -> GeneralRecord:
    """Return what a general did and spent. Raises :class:`ApiError` if its manifest cannot be read."""
    state, home = court_state(context), context.court.home
    package = load_generals(home).by_name.get(check_name("general", name))
    if package is None:
        problems = (await read_general(context, name)).problems
        raise ApiError(422, "SYS_INVALID_PACKAGE", f"the manifest of {name} cannot be read", problems)
    page = await state.indexes[TASKS].page([_ended_tasks_of(name)], LATEST_RESULTS)
    tasks = [entry.id for entry in page.items]

    def read() -> GeneralRecord:
        with state.ledger() as ledger:
            return general_record(home, load_system(home), package.manifest, ledger, tasks, context.clock())

    return await asyncio.to_thread(read)


async def set_enabled(context: WebContext, name: str, user: str, *, enabled: bool) -> GeneralState:
    """Enable or disable a general. Raises :class:`kingdom.court.errors.UnknownGeneral`."""
    await switch_general(context.court, name, enabled=enabled, user=user)
    return await read_general(context, name)


async def install_general(context: WebContext, folder: str, *, replace: bool) -> GeneralState:
    """Install a general from a folder of this machine, or one of those that come along, by its name."""
    home, shipped = context.court.home, shipped_generals()
    if folder not in shipped and not folder.startswith("/"):
        known = ", ".join(shipped)
        raise ApiError(
            422, "SYS_INVALID", f"{folder!r:.200} is no absolute path on the machine of the court, and none of {known}"
        )
    require_lead(home)

    def install() -> GeneralPackage:
        if folder in shipped:
            return install_shipped(home, folder, replace=replace)
        return install_package(home, Path(folder), replace=replace, engines=_engine_names())

    made = await asyncio.to_thread(install)
    acts_on(made.name)
    return await read_general(context, made.name)


def _ended_tasks_of(name: str) -> EntryFilter:
    return lambda entries: [
        entry
        for entry in entries
        if entry.general == name and entry.status not in ("pending", "in_progress", "invalid")
    ]


def _engine_names() -> frozenset[str]:
    return frozenset(default_engines())


def _generals(context: WebContext) -> list[GeneralState]:
    home = context.court.home
    engines, disabled = _engine_names(), DisabledGenerals(home)
    generals = load_generals(home)
    return [
        _general(name, name not in disabled, generals.by_name.get(name), check_package(home.general(name), engines))
        for name in sorted({*generals.by_name, *generals.broken})
    ]


def _general(name: str, enabled: bool, general: GeneralPackage | None, problems: list[str]) -> GeneralState:
    if general is None:
        return GeneralState(
            name=json_safe(name),
            enabled=enabled,
            description="",
            engine="",
            model=None,
            mode="",
            hears=[],
            schedules={},
            concurrency=0,
            timeout_seconds=0.0,
            problems=json_safe(problems),
            manifest=None,
        )
    manifest = general.manifest
    return GeneralState(
        name=name,
        enabled=enabled,
        description=manifest.description,
        engine=manifest.engine.name,
        model=manifest.engine.model,
        mode=manifest.mode,
        hears=[one.type for one in manifest.subscribes],
        schedules={one.name: one.cron for one in manifest.schedules},
        concurrency=manifest.concurrency,
        timeout_seconds=manifest.timeout_seconds,
        problems=json_safe(problems),
        manifest=json_safe(manifest.model_dump(mode="json")),
    )
