"""What is kept back from whoever looks: secrets, where somebody wrote one down instead of a reference to it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from kingdom.gitops.urls import hide_password
from kingdom.web.envelope import ApiError
from kingdom.workflow.domain.sources import McpServerRef
from kingdom.yamlfile import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kingdom.workflow.domain.template import WorkflowTemplate

HIDDEN: Final = "***"
_REFERENCE: Final = re.compile(r"(?:(?:Bearer|Basic|Token) )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def shown_env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables as they may be shown: references to the environment as they are, values not at all."""
    return {name: value if _REFERENCE.fullmatch(value) else HIDDEN for name, value in env.items()}


def shown_url(url: str) -> str:
    """An address without password, and without the values of its query; nothing of one that makes no sense."""
    try:
        parts = urlsplit(hide_password(url))
    except ValueError:
        return HIDDEN
    query = "&".join(f"{name}={HIDDEN}" for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    return urlunsplit(parts._replace(query=query, fragment=""))


def shown_words(command: Sequence[str]) -> list[str]:
    """A command without what looks like a secret in it."""
    return [HIDDEN if looks_secret(word) else word for word in command]


def refuse_secrets(values: Iterable[tuple[str, str]]) -> None:
    """Raise when one of these values, each with the place it stands at, must not be stored."""
    for where, value in values:
        if looks_secret(value):
            raise ApiError(
                422,
                "MCP_SECRET",
                f"{where} looks like a secret, and the store is no place for one: put it into the environment of the "
                "engine and refer to it as ${NAME}",
            )


def shown_template(template: WorkflowTemplate) -> WorkflowTemplate:
    """A template as it may be shown."""
    return replace(
        template,
        mcp_server_refs=_shown(template.mcp_server_refs),
        works=tuple(replace(work, mcp_server_refs=_shown(work.mcp_server_refs)) for work in template.works),
    )


def restored(template: WorkflowTemplate, before: WorkflowTemplate | None) -> WorkflowTemplate:
    """A template that somebody changed who was not shown its secrets: what was hidden is as it was ``before``.

    Raises :class:`ApiError` for something hidden that was not there before, and for secrets.
    """
    old = {} if before is None else {work.name: work.mcp_server_refs for work in before.works}
    return replace(
        template,
        mcp_server_refs=_restored(template.mcp_server_refs, () if before is None else before.mcp_server_refs),
        works=tuple(
            replace(work, mcp_server_refs=_restored(work.mcp_server_refs, old.get(work.name, ())))
            for work in template.works
        ),
    )


def restored_refs(refs: Iterable[McpServerRef], before: Iterable[McpServerRef] = ()) -> tuple[McpServerRef, ...]:
    """The same for single references."""
    return _restored(tuple(refs), tuple(before))


def _shown(refs: tuple[McpServerRef, ...]) -> tuple[McpServerRef, ...]:
    return tuple(McpServerRef(ref.mcp_server_id, shown_env(ref.env)) for ref in refs)


def _restored(refs: tuple[McpServerRef, ...], before: tuple[McpServerRef, ...]) -> tuple[McpServerRef, ...]:
    old = {ref.mcp_server_id: ref.env for ref in before}
    made = []
    for ref in refs:
        known = old.get(ref.mcp_server_id, {})
        env = {name: known.get(name, value) if value == HIDDEN else value for name, value in ref.env.items()}
        if lost := [name for name, value in env.items() if value == HIDDEN]:
            raise ApiError(
                422,
                "MCP_HIDDEN_VALUE",
                f"{lost[0]} of {ref.mcp_server_id} is {HIDDEN}, which stands for a value that is not shown, and there "
                "is none: give the value, or a reference ${NAME}",
            )
        refuse_secrets((f"{name} of {ref.mcp_server_id}", value) for name, value in env.items() if name in ref.env)
        made.append(McpServerRef(ref.mcp_server_id, env))
    return tuple(made)
