"""Make values safe to show: hide secrets, replace what JSON and UTF-8 cannot carry."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from kingdom.base.text import looks_secret
from kingdom.gitops.names import hide_password
from kingdom.web.envelope import ApiError
from kingdom.workflow.domain.resources import McpServerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kingdom.workflow.domain.workflow import WorkflowTemplate


# ── Secrets ──


HIDDEN: Final = "***"
_REFERENCE_PATTERN: Final = re.compile(r"(?:(?:Bearer|Basic|Token) )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def shown_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables with hidden values; references to the environment are shown."""
    return {name: value if _REFERENCE_PATTERN.fullmatch(value) else HIDDEN for name, value in env.items()}


def shown_url(url: str) -> str:
    """Return a URL without its password and the values of its query; hidden entirely if malformed."""
    try:
        parts = urlsplit(hide_password(url))
    except ValueError:
        return HIDDEN
    query = "&".join(f"{name}={HIDDEN}" for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    return urlunsplit(parts._replace(query=query, fragment=""))


def shown_command(command: Sequence[str]) -> list[str]:
    """Return a command with arguments that look like secrets hidden."""
    return [HIDDEN if looks_secret(word) else word for word in command]


def refuse_secrets(values: Iterable[tuple[str, str]]) -> None:
    """Raise if one of the values, given with its place, looks like a secret."""
    for where, value in values:
        if looks_secret(value):
            raise ApiError(
                422,
                "MCP_SECRET",
                f"{where} looks like a secret, which must not be stored: put it into the environment of the engine and "
                "refer to it as ${NAME}",
            )


def shown_template(template: WorkflowTemplate) -> WorkflowTemplate:
    """Return a template with hidden secrets."""
    return replace(
        template,
        mcp_server_refs=_shown_refs(template.mcp_server_refs),
        works=tuple(replace(work, mcp_server_refs=_shown_refs(work.mcp_server_refs)) for work in template.works),
    )


def restore_secrets(template: WorkflowTemplate, before: WorkflowTemplate | None) -> WorkflowTemplate:
    """Replace hidden values of an edited template with those it had ``before``.

    Raises :class:`ApiError` for a hidden value that did not exist before, and for values that look like secrets.
    """
    old = {} if before is None else {work.name: work.mcp_server_refs for work in before.works}
    return replace(
        template,
        mcp_server_refs=_restore(template.mcp_server_refs, () if before is None else before.mcp_server_refs),
        works=tuple(
            replace(work, mcp_server_refs=_restore(work.mcp_server_refs, old.get(work.name, ())))
            for work in template.works
        ),
    )


def restore_ref_secrets(refs: Iterable[McpServerRef], before: Iterable[McpServerRef] = ()) -> tuple[McpServerRef, ...]:
    """Replace hidden values of references; see :func:`restore_secrets`."""
    return _restore(tuple(refs), tuple(before))


def _shown_refs(refs: tuple[McpServerRef, ...]) -> tuple[McpServerRef, ...]:
    return tuple(McpServerRef(ref.mcp_server_id, shown_env(ref.env)) for ref in refs)


def _restore(refs: tuple[McpServerRef, ...], before: tuple[McpServerRef, ...]) -> tuple[McpServerRef, ...]:
    old = {ref.mcp_server_id: ref.env for ref in before}
    made = []
    for ref in refs:
        known = old.get(ref.mcp_server_id, {})
        env = {name: known.get(name, value) if value == HIDDEN else value for name, value in ref.env.items()}
        if lost := [name for name, value in env.items() if value == HIDDEN]:
            raise ApiError(
                422,
                "MCP_HIDDEN_VALUE",
                f"{lost[0]} of {ref.mcp_server_id} is {HIDDEN}, the placeholder of a hidden value, but no value is "
                "stored: give the value, or a reference ${NAME}",
            )
        refuse_secrets((f"{name} of {ref.mcp_server_id}", value) for name, value in env.items() if name in ref.env)
        made.append(McpServerRef(ref.mcp_server_id, env))
    return tuple(made)


# ── Values that JSON or UTF-8 cannot represent ──


MAX_NESTING: Final = 60
"""Maximum depth of nesting. Deeper values are cut so that serialising them does not exhaust the stack."""


def valid_text(text: str) -> str:
    """Replace lone surrogates in a text."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def json_safe(value: Any, depth: int = 0) -> Any:
    """Replace what JSON or UTF-8 cannot represent in a document. Markup is left as text."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict | list) and depth >= MAX_NESTING:
        return "…"
    if isinstance(value, dict):
        return {valid_text(str(key)): json_safe(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item, depth + 1) for item in value]
    return value


def check_payload(payload: dict[str, Any]) -> None:
    """Raise :class:`ApiError` if a payload cannot be stored as JSON without changes."""
    if json_safe(payload) != payload:
        wrong = f"NaN, a lone surrogate, or more than {MAX_NESTING} levels of nesting"
        raise ApiError(422, "SYS_INVALID", f"the payload cannot be stored as JSON: it has {wrong}")
