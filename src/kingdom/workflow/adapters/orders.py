"""What an agent is asked: one order for each query and each report.

An engine's options in a template are given to the engine, but for three that say how far a run may go:
``profile`` (read, edit, full), ``timers`` ({first_output, silence, total, …} in seconds) and ``caps`` ({turns, tokens,
cost_usd}).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from kingdom.agents.contract import instructions
from kingdom.agents.errors import InvalidOrder
from kingdom.agents.port import Caps, Order, Profile, Timers
from kingdom.agents.untrusted import ANSWER, clean, cut_middle, fence
from kingdom.workflow.domain.statuses import TaskStatus

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.workflow.adapters.places import Place
    from kingdom.workflow.domain.task import Task
    from kingdom.workflow.domain.work import Work

Kind = Literal["query", "report"]
L = TypeVar("L", Timers, Caps)
_LONGEST_ANSWER: Final = 4000  # characters of an earlier answer that a new conversation is told
_LIMITS: Final = ("profile", "timers", "caps")
_PROFILES: Final = ("read", "edit", "full")


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a run may go, where its Work says nothing else."""

    profile: Profile = "edit"
    timers: Timers = field(default_factory=Timers)
    caps: Caps = field(default_factory=Caps)


def run_id(work: Work, task: Task, kind: Kind = "query", number: int = 1) -> str:
    """The id of a run, the same after a restart. ``number`` counts how often it was sent (again) in this attempt."""
    ending = ("-report" if kind == "report" else "") + (f".{number}" if number > 1 else "")
    return f"{work.id}.{task.id}.{task.attempt}{ending}"


def make_order(
    work: Work,
    task: Task,
    kind: Kind,
    *,
    run: str,
    prompt: str,
    place: Place,
    session: str | None,
    limits: Limits,
    mcp_config: Path | None,
) -> Order:
    """The order of one run. Raises :class:`InvalidOrder` for options that make no sense."""
    options = dict(work.engine_options)
    profile = options.get("profile", limits.profile)
    if profile not in _PROFILES:
        raise InvalidOrder(f"work {work.name}: profile {profile!r:.40} must be one of {', '.join(_PROFILES)}")
    name = f"{work.name}/{task.name}"
    return Order(
        run_id=run,
        task_id=task.id,
        engine=work.engine,
        prompt=prompt,
        cwd=place.cwd,
        result_path=place.result_path(run),
        options={key: value for key, value in options.items() if key not in _LIMITS},
        model=work.model,
        session_id=session,
        profile=profile,
        timers=_numbers(limits.timers, options.get("timers"), f"work {work.name}: timers"),
        caps=_numbers(limits.caps, options.get("caps"), f"work {work.name}: caps"),
        mcp_config=mcp_config,
        labels={
            "task_type": name if kind == "query" else f"{name}/report",
            "workflow": work.workflow_id,
            "work": work.name,
            "task": task.name,
        },
    )


def query_prompt(work: Work, task: Task, text: str, place: Place, result_path: Path, session: str | None) -> str:
    """A query with what the agent has to know beside it; a conversation that goes on knows the rest."""
    parts = [] if session else [*_surroundings(place), *_so_far(work, task)]
    if parts:
        parts.append("# Your task now\n")
    return "\n\n".join([*parts, text, f"# How to report\n\n{instructions(result_path)}"])


def _surroundings(place: Place) -> list[str]:
    if len(place.repositories) < 2:
        return []
    folders = "\n".join(f"- {name}: {folder}" for name, folder in place.repositories.items())
    return [f"# Where you work\n\nEach repository is a folder of its own; work in these only:\n{folders}"]


def _so_far(work: Work, task: Task) -> list[str]:
    """For a conversation that begins in the midst of a Work, because the first one was lost."""
    done = [other for other in work.tasks if other.status is TaskStatus.COMPLETED and other.order < task.order]
    if not done:
        return []
    told = "\n\n".join(
        f"## {other.name}\n\n{fence(cut_middle(clean(other.response or ''), _LONGEST_ANSWER), ANSWER)}"
        for other in done
    )
    return [f"# What was done before, in a conversation that is lost\n\n{told}"]


def _numbers(defaults: L, given: Any, where: str) -> L:
    """Limits with some of them replaced by numbers."""
    if given is None:
        return defaults
    names = [one.name for one in fields(defaults)]
    if not isinstance(given, Mapping) or (unknown := set(given) - set(names)):
        what = f"{given!r:.80}" if not isinstance(given, Mapping) else ", ".join(sorted(map(str, unknown)))
        raise InvalidOrder(f"{where}: {what} makes no sense here; use {', '.join(names)}")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise InvalidOrder(f"{where}.{name}: {value!r:.40} must be a number above 0")
    return replace(defaults, **given)
