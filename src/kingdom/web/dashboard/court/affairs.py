"""The side of the page: what is wrong, what it costs, what waits, who runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kingdom.web.dashboard.building import badge, empty, figure, link, meter, row, tag, text
from kingdom.web.dashboard.building.formats import ago, lasting, money, short

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.court import CostState, QueueState, RoleState, Trouble


def draw_troubles(visit: Visit, holds: dict[str, Any], problems: Sequence[Trouble]) -> None:
    """What is held back and what went wrong, each with its reason."""
    words = visit.words
    if not holds and not problems:
        empty(words("court.troubles.none"))
        return
    with tag("ul", "k-lines"):
        for reason, held in holds.items():
            count = held.get("count", 1) if isinstance(held, dict) else 1
            with tag("li", "k-stack k-tight"):
                with row():
                    badge(words("court.held"), "warning")
                    text(words("court.held.count", n=count), "k-muted k-small")
                text(reason, "k-wrap")
        for problem in problems:
            with tag("li", "k-stack k-tight"):
                if problem.what.startswith("task-"):
                    link(problem.what, f"/tasks/{problem.what}", "k-mono")
                else:
                    text(problem.what, "k-mono k-wrap")
                text(problem.why, "k-wrap k-text-bad")


def draw_cost(visit: Visit, cost: CostState) -> None:
    """What was spent, against what may be."""
    words = visit.words
    with tag("div", "k-stack"):
        with tag("div", "k-figures"):
            figure(money(cost.day_usd), words("court.cost.day"))
            figure(money(cost.month_usd), words("court.cost.month"))
            figure(short(cost.day_tokens), words("court.cost.tokens"))
        for limit in cost.limits:
            with tag("div", "k-stack k-tight"):
                with row("k-spread k-small"):
                    text(limit.name)
                    text(limit.shown, "k-muted")
                meter(limit.part, limit.name)
        if not cost.limits:
            text(words("court.cost.unlimited"), "k-muted k-small", name="p")


def draw_queues(visit: Visit, queues: Sequence[QueueState]) -> None:
    """What waits where."""
    words = visit.words
    with tag("table", "k-table", aria_label=words("court.queues")):
        with tag("thead"), tag("tr"):
            text(words("court.queue"), name="th")
            for column in ("waiting", "held", "dead", "oldest"):
                text(words(f"court.queue.{column}"), "k-num", name="th")
        with tag("tbody"):
            for queue in queues:
                waiting, *others = queue.counts.values()
                dead = others[-1] if others else 0
                with tag("tr"):
                    with tag("td"):
                        link(words.of("queue", queue.name), f"/bus?bus=court&stream={queue.name}", "k-row-link")
                    text(f"{waiting:,}", "k-num", name="td")
                    text(f"{sum(others[:-1]):,}", "k-num", name="td")
                    text(f"{dead:,}", f"k-num {'k-text-bad k-strong' if dead else ''}", name="td")
                    oldest = lasting(queue.oldest_seconds, words) if waiting else "–"
                    text(oldest, "k-num k-muted", name="td")


def draw_roles(visit: Visit, roles: Sequence[RoleState]) -> None:
    """Who runs, and when each was heard of."""
    words = visit.words
    with tag("ul", "k-lines k-roles"):
        for role in roles:
            with tag("li"):
                with row():
                    text(role.name, "k-strong k-clip")
                    badge(words.of("role", role.state), role.state, "k-push")
                with row("k-small k-muted"):
                    text(ago(role.heartbeat_seconds, words))
                    if role.pid is not None:
                        text(f"pid {role.pid}")
                    if role.deaths:
                        text(words("court.deaths", n=role.deaths), "k-text-bad")
                if role.reason:
                    text(role.reason, "k-small k-wrap k-text-bad", name="p")
