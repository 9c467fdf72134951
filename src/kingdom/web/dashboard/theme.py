"""Colours of the dashboard for light and dark, its style sheet, script and logo.

Every text colour has a contrast of at least 4.5 to its background; a test computes it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal, TypeAlias

from fastapi import APIRouter, Response

from kingdom.web.dashboard import theme

Tone: TypeAlias = Literal["ok", "busy", "warn", "bad", "idle"]

LIGHT: Final[dict[str, str]] = {
    "page": "#f4f5f7",
    "surface": "#ffffff",
    "raised": "#f8f9fb",
    "line": "#dde1e7",
    "line-strong": "#b9c1cb",
    "text": "#1b222b",
    "muted": "#56616e",
    "accent": "#4a3fb5",
    "accent-soft": "#ecebfa",
    "on-accent": "#ffffff",
    "ok": "#14693f",
    "ok-soft": "#e2f3e9",
    "busy": "#1c56a3",
    "busy-soft": "#e4eefb",
    "warn": "#7d5100",
    "warn-soft": "#fbf0d9",
    "bad": "#ab2119",
    "bad-soft": "#fce8e6",
    "idle": "#56616e",
    "idle-soft": "#eceff2",
    "shadow": "rgba(20, 28, 38, 0.06)",
}
DARK: Final[dict[str, str]] = {
    "page": "#0e1216",
    "surface": "#161b21",
    "raised": "#1c222a",
    "line": "#28313b",
    "line-strong": "#3c4856",
    "text": "#e3e8ee",
    "muted": "#9ba8b6",
    "accent": "#b3b0ff",
    "accent-soft": "#26264a",
    "on-accent": "#14142b",
    "ok": "#6bd39c",
    "ok-soft": "#15301f",
    "busy": "#86bbff",
    "busy-soft": "#172b45",
    "warn": "#ecbb5b",
    "warn-soft": "#362a10",
    "bad": "#ff948a",
    "bad-soft": "#40191a",
    "idle": "#9ba8b6",
    "idle-soft": "#242c35",
    "shadow": "rgba(0, 0, 0, 0.35)",
}
CHART: Final[dict[str, tuple[str, str]]] = {
    # (light, dark); lines need a contrast of only 3
    "first": ("#4a3fb5", "#b3b0ff"),
    "second": ("#0f7b7b", "#5cc8c8"),
    "third": ("#ab2119", "#ff948a"),
    "fourth": ("#9a6400", "#ecbb5b"),
    "fifth": ("#1c6fc4", "#86bbff"),
    "sixth": ("#6b7684", "#9ba8b6"),
}

_TONE_BY_STATUS: Final[dict[str, Tone]] = {
    # statuses of tasks, roles, streams and workflows
    "pending": "idle",
    "created": "idle",
    "ready": "idle",
    "stopped": "idle",
    "skipped": "idle",
    "cancelled": "idle",
    "discarded": "idle",
    "waiting": "warn",
    "in_progress": "busy",
    "processing": "busy",
    "dispatched": "busy",
    "starting": "busy",
    "stopping": "warn",
    "completed": "ok",
    "running": "ok",
    "sent": "ok",
    "answered": "ok",
    "success": "ok",
    "green": "ok",
    "ok": "ok",
    "enabled": "ok",
    "disabled": "idle",
    "default": "idle",
    "file": "ok",
    "broken": "bad",
    "active": "ok",
    "silent": "bad",
    "leaving": "warn",
    "removed": "idle",
    "late": "warn",
    "limited": "warn",
    "attention": "bad",
    "question": "warn",
    "asking": "warn",
    "review": "warn",
    "failed_task": "bad",
    "failed_workflow": "bad",
    "letter": "bad",
    "alert": "bad",
    "problem": "bad",
    "down": "bad",
    "paused": "warn",
    "needs_human": "warn",
    "yellow": "warn",
    "orange": "warn",
    "warning": "warn",
    "failed": "bad",
    "dead": "bad",
    "invalid": "bad",
    "red": "bad",
    "critical": "bad",
}


def tone_of(status: str) -> Tone:
    return _TONE_BY_STATUS.get(status.lower(), "idle")


def variables() -> str:
    """Return the colours as CSS custom properties, such as ``var(--k-text)``."""
    light, dark = _declared(LIGHT, 0), _declared(DARK, 1)
    return f"body.body--light {{ {light} }}\nbody.body--dark {{ {dark} }}\n"


def background(dark: bool | None) -> str:
    """Return the page style that applies before scripts run: a dark page does not flash white, nor its header."""
    if dark is None:
        return f"{background(False)} @media (prefers-color-scheme: dark) {{ {background(True)} }}"
    colours, scheme = (DARK, "dark") if dark else (LIGHT, "light")
    header = " ".join(f"--k-{name}: {colours[name]};" for name in ("surface", "line", "text", "muted"))
    return f":root {{ background: {colours['page']}; color-scheme: {scheme}; {header} }}"


def _declared(colours: dict[str, str], index: int) -> str:
    scheme = ("light", "dark")[index]
    names = {**colours, **{f"chart-{name}": pair[index] for name, pair in CHART.items()}}
    return " ".join([f"color-scheme: {scheme};", *(f"--k-{name}: {value};" for name, value in names.items())])


# ── Assets, served with long cache times ──


_ASSETS_FOLDER: Final = Path(__file__).parent / "assets"
LOGO_PATH: Final = _ASSETS_FOLDER / "mark.svg"
_LOGO: Final = LOGO_PATH.read_bytes()
_STYLESHEET: Final = theme.variables() + "".join(
    path.read_text(encoding="utf-8") for path in sorted(_ASSETS_FOLDER.glob("*.css"))
)
STYLESHEET_PATH: Final = f"/assets/kingdom-{hashlib.sha256(_STYLESHEET.encode()).hexdigest()[:12]}.css"
"""The name contains a hash of the content: a new version has a new URL."""

_SCRIPT: Final = "".join(path.read_text(encoding="utf-8") for path in sorted(_ASSETS_FOLDER.glob("*.js")))
SCRIPT_PATH: Final = f"/assets/kingdom-{hashlib.sha256(_SCRIPT.encode()).hexdigest()[:12]}.js"

assets_router = APIRouter(include_in_schema=False)
_CACHE_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


@assets_router.get(STYLESHEET_PATH)
async def get_stylesheet() -> Response:
    return Response(_STYLESHEET, media_type="text/css", headers=_CACHE_FOREVER)


@assets_router.get(SCRIPT_PATH)
async def get_script() -> Response:
    return Response(_SCRIPT, media_type="text/javascript", headers=_CACHE_FOREVER)


@assets_router.get("/assets/mark.svg")
@assets_router.get("/favicon.ico")
async def get_logo() -> Response:
    return Response(_LOGO, media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=86400"})
