"""The environment of an agent: a short list of names from ours, and what the order and the engine add. Nothing else.

What the daemon knows by environment (tokens of GitHub, Slack, Jira) stays with the daemon unless a manifest names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.agents.errors import InvalidOrder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.agents.port import Order

TASK_ID: Final = "KINGDOM_TASK_ID"
RUN_ID: Final = "KINGDOM_RUN_ID"  # also the mark by which the processes of a run are found again
RESULT_PATH: Final = "KINGDOM_RESULT_PATH"

_NAMES: Final = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR"),
        *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "PIP_CERT", "CARGO_HTTP_CAINFO"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    )
)
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


def inherited(base: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that every agent may see."""
    kept = {name: value for name, value in base.items() if name in _NAMES or name.startswith("LC_")}
    kept.setdefault("PATH", _DEFAULT_PATH)
    return kept


def environment(order: Order, base: Mapping[str, str], engine: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of one run: ours as far as it is listed, the engine's, the order's, and who it is."""
    made = {
        **inherited(base),
        **(engine or {}),
        **order.env,
        TASK_ID: order.task_id,
        RUN_ID: order.run_id,
        RESULT_PATH: str(order.result_path),
    }
    for name, value in made.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise InvalidOrder(
                f"the environment of run {order.run_id} has {name!r:.80}: no =, no NUL in names or values"
            )
    return made
