"""What is measured, in the order it runs: the name on the command line, and the module that measures it.

A case is a module with a ``TITLE`` and ``PARTS``, functions that take the context and return tables.
"""

from typing import Final

CASES: Final = {
    "startup": "startup",
    "postgres-drain": "postgres_drain",
    "postgres-publish": "postgres_publish",
    "postgres-snapshot": "postgres_snapshot",
    "postgres-counts": "postgres_counts",
    "history": "history",
    "latency": "latency",
    "ordered": "ordered",
    "growth": "growth",
    "kafka": "kafka",
    "sqlite": "sqlite",
    "files": "files",
    "worktree": "worktree",
    "request": "request",
    "journal": "journal",
    "retention": "retention",
    "court-dispatch": "court_dispatch",
    "court-latency": "court_latency",
    "court-idle": "court_idle",
    "machines": "machines",
    "scale": "scale",
    "sentinel-idle": "sentinel_idle",
    "agents": "agents",
    "workflow": "workflow",
    "workflow-many": "workflow_many",
    "workflow-memory": "workflow_memory",
    "web-live": "web_live",
    "web-api": "web_api",
    "web-court": "web_court",
    "web-lists": "web_lists",
    "web-dashboard": "web_dashboard",
}
