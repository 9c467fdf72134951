"""Alerts about sources that the sentinel cannot read, and messages that the envoy cannot send: see their heartbeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json
from kingdom.base.times import epoch_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.court.chamberlain.alerts import Alerts, ChamberlainTexts
    from kingdom.court.home import Home

SOURCE_PREFIX: Final = "source:"
_UNSENT: Final = "messages"
_UNSENT_SECONDS: Final = 5 * 60.0  # an outage that is over by then needs nobody
_PATIENCE_SECONDS: Final = 15 * 60.0  # a source that fails for a few minutes needs nobody


def check_sources(home: Home, alerts: Alerts, texts: ChamberlainTexts, now: float) -> None:
    """Update the alerts of all sources: one when a problem begins, one when it is over."""
    heartbeat = read_json(home.heartbeat("sentinel"))
    sources = heartbeat.get("sources") if isinstance(heartbeat, dict) else None
    if not isinstance(sources, dict):
        return
    found = dict(_problems(sources, now))
    unknown = {name for name, report in sources.items() if isinstance(report, dict) and report.get("unknown") is True}
    for key in sorted(found.keys() | set(alerts.active(SOURCE_PREFIX))):
        problem = found.get(key)
        if problem is None and key.partition(":")[0] in unknown:  # restarted: what it could not read, it may not yet
            continue
        alerts.update(
            SOURCE_PREFIX + key,
            None if problem is None else "unread",
            lambda text=problem: texts.format("source", problem=text),  # type: ignore[misc]
            lambda name=key: texts.format("source-over", source=name.replace(":", ": ", 1)),  # type: ignore[misc]
        )


def check_messages(home: Home, alerts: Alerts, texts: ChamberlainTexts, now: float, *, waiting: bool) -> None:
    """Update the alert that messages which wait cannot be sent. The status shows it: where they go, nobody reads it."""
    heartbeat = read_json(home.heartbeat("envoy"))
    if not isinstance(heartbeat, dict):
        return
    problem, since = heartbeat.get("problem"), epoch_seconds(heartbeat.get("failing_since"))
    if not isinstance(problem, str):
        if heartbeat.get("sent") and alerts.active(_UNSENT):  # an envoy that has sent nothing yet may fail as before
            alerts.update(_UNSENT, None, str, lambda: texts.format("messages-over"))
    elif waiting and since is not None and now - since >= _UNSENT_SECONDS:
        text = texts.format("messages", problem=problem)
        alerts.update(_UNSENT, "unsent", lambda: text, lambda: texts.format("messages-over"))


def _problems(sources: dict[str, Any], now: float) -> Iterator[tuple[str, str]]:
    """Yield each problem that people should know of: its key, and a sentence that says what to do."""
    for source, report in sorted(sources.items()):
        if not isinstance(report, dict):
            continue
        partial, problem = report.get("problems"), report.get("problem")
        for part, text in partial.items() if isinstance(partial, dict) else ():
            yield f"{source}:{part}", str(text)
        since = epoch_seconds(report.get("failing_since"))
        lasting = since is not None and now - since >= _PATIENCE_SECONDS
        if isinstance(problem, str) and (lasting or report.get("refused") is True):
            yield source, problem
