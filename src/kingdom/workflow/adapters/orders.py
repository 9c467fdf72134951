"""The order of one agent run: its prompt and its limits.

The engine options of a Work go to the engine, but for those that limit the run: ``profile`` (read, edit, full),
``timers`` ({first_output, silence, total, …} in seconds), ``caps`` ({turns, tokens, cost_usd}), ``sandbox: required``,
and ``network``, the hosts that a confined run may reach besides its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from kingdom.agents.contract import instructions
from kingdom.agents.errors import InvalidOrder
from kingdom.agents.port import Caps, Order, Profile, SandboxMode, Timers
from kingdom.agents.sandbox.egress import HostRule
from kingdom.agents.untrusted import ANSWER, clean, cut_middle, fence
from kingdom.workflow.domain.statuses import TaskStatus

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.workflow.adapters.environment import WorkEnvironment
    from kingdom.workflow.domain.work import Task, Work


RunKind = Literal["query", "report"]
L = TypeVar("L", Timers, Caps)
_MAX_ANSWER_CHARS: Final = 4000  # of an earlier answer in the prompt of a new conversation
_PERSON: Final = "what a person said: it decides what was asked"
_LIMIT_OPTIONS: Final = ("profile", "timers", "caps", "sandbox", "network")
_PROFILES: Final = ("read", "edit", "full")


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run whose Work sets no others."""

    profile: Profile = "edit"
    timers: Timers = field(default_factory=Timers)
    caps: Caps = field(default_factory=Caps)


def run_id(work: Work, task: Task, kind: RunKind = "query", number: int = 1) -> str:
    """Return the id of a run, the same after a restart. ``number`` counts how often it was sent in this attempt."""
    ending = ("-report" if kind == "report" else "") + (f".{number}" if number > 1 else "")
    return f"{work.id}.{task.id}.{task.attempt}{ending}"


def make_order(
    work: Work,
    task: Task,
    kind: RunKind,
    *,
    run: str,
    prompt: str,
    environment: WorkEnvironment,
    session: str | None,
    limits: RunLimits,
    mcp_config: Path | None,
) -> Order:
    """Return the order of one run; raise :class:`InvalidOrder` for invalid options."""
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
        cwd=environment.cwd,
        result_path=environment.result_path(run),
        options={key: value for key, value in options.items() if key not in _LIMIT_OPTIONS},
        model=work.model,
        session_id=session,
        profile=profile,
        timers=_with_overrides(limits.timers, options.get("timers"), f"work {work.name}: timers"),
        caps=_with_overrides(limits.caps, options.get("caps"), f"work {work.name}: caps"),
        mcp_config=mcp_config,
        sandbox=_sandbox(options.get("sandbox"), work.name),
        network=_network(options.get("network"), work.name),
        folders=environment.folders,
        labels={
            "task_type": name if kind == "query" else f"{name}/report",
            "workflow": work.workflow_id,
            "work": work.name,
            "task": task.name,
        },
    )


def _sandbox(given: Any, work: str) -> SandboxMode | None:
    if given not in (None, "required"):
        raise InvalidOrder(
            f"work {work}: sandbox {given!r:.40} is not allowed here: a work can only be stricter (required)"
        )
    return "required" if given else None


def _network(given: Any, work: str) -> tuple[str, ...]:
    hosts = [] if given is None else given
    if not isinstance(hosts, list | tuple) or not all(isinstance(host, str) for host in hosts):
        raise InvalidOrder(f"work {work}: network must be a list of hosts, such as [api.github.com]")
    for host in hosts:
        try:
            HostRule.read(host)
        except ValueError as error:
            raise InvalidOrder(f"work {work}: network: {error}") from None
    return tuple(hosts)


def query_prompt(
    work: Work, task: Task, text: str, environment: WorkEnvironment, result_path: Path, session: str | None
) -> str:
    """Return a query with its context; a conversation that goes on knows the context already."""
    parts = [] if session else [*_repository_list(environment), *_earlier_answers(work, task)]
    if parts:
        parts.append("# Your task now\n")
    if task.answer is not None:
        text = _answered(task, text, session)
    return "\n\n".join([*parts, text, f"# How to report\n\n{instructions(result_path)}"])


def _answered(task: Task, text: str, session: str | None) -> str:
    """Return a person's answer to the agent's question; a new conversation also needs the query and the question.

    What a person says unasked follows the query.
    """
    said = fence(cut_middle(clean(task.answer or ""), _MAX_ANSWER_CHARS), _PERSON)
    if task.question is None:
        return f"{text}\n\n# What a person says about it\n\n{said}\n\nWhere it differs from the task, it counts."
    answer = f"# A person's answer to your question\n\n{said}\n\nGo on with the task."
    if session:
        return answer
    asked = fence(cut_middle(clean(task.question or ""), _MAX_ANSWER_CHARS), ANSWER)
    return f"{text}\n\n# What you asked before\n\n{asked}\n\n{answer}"


def _repository_list(environment: WorkEnvironment) -> list[str]:
    if len(environment.repositories) < 2:
        return []
    folders = "\n".join(f"- {name}: {folder}" for name, folder in environment.repositories.items())
    beside = "Write nothing beside them: it is in no repository, and would be refused."
    return [f"# Where you work\n\nEach repository is a folder of its own; write in these only:\n{folders}\n\n{beside}"]


def _earlier_answers(work: Work, task: Task) -> list[str]:
    """Return the answers so far, for a new conversation that replaces a lost one."""
    done = [other for other in work.tasks if other.status is TaskStatus.COMPLETED and other.order < task.order]
    if not done:
        return []
    answers = "\n\n".join(
        f"## {other.name}\n\n{fence(cut_middle(clean(other.response or ''), _MAX_ANSWER_CHARS), ANSWER)}"
        for other in done
    )
    return [f"# What was done before, in a conversation that is lost\n\n{answers}"]


def _with_overrides(defaults: L, given: Any, where: str) -> L:
    """Return the limits with some replaced; raise :class:`InvalidOrder` unless they are known and positive."""
    if given is None:
        return defaults
    names = [one.name for one in fields(defaults)]
    if not isinstance(given, Mapping) or (unknown := set(given) - set(names)):
        what = f"{given!r:.80}" if not isinstance(given, Mapping) else ", ".join(sorted(map(str, unknown)))
        raise InvalidOrder(f"{where}: {what} is not allowed here; use {', '.join(names)}")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise InvalidOrder(f"{where}.{name}: {value!r:.40} must be a number above 0")
    return replace(defaults, **given)
