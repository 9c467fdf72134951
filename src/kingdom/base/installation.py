"""The source of this installation of Kingdom, for messages that say what to install."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

_NAME: Final = "kingdom"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, from where it was installed."""
    source = _source()
    options = ""
    if source is None:
        wanted = f"{_NAME}[{extra}]"
    elif "vcs_info" in source:
        vcs = source["vcs_info"]
        wanted = f"{_NAME}[{extra}] @ {vcs['vcs']}+{source['url']}@{vcs['commit_id']}"
    elif not source["url"].startswith("file:"):
        wanted = f"{_NAME}[{extra}] @ {source['url']}"
    else:
        place = Path(unquote(urlsplit(source["url"]).path))
        if not place.exists():  # a checkout that was moved or removed since, a file that was downloaded
            return f"pip install '.[{extra}]' in a checkout of Kingdom"
        wanted = f"{place}[{extra}]"
        options = "-e " if source.get("dir_info", {}).get("editable") else ""
    quoted = f"'{wanted}'" if "'" not in wanted else shlex.quote(wanted)
    return f"pip install {options}{quoted}"


def _source() -> dict[str, Any] | None:
    """Return what pip wrote about the source (PEP 610); None for an installation from an index."""
    try:
        found = json.loads(distribution(_NAME).read_text("direct_url.json") or "null")
    except (PackageNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("url"), str) else None
