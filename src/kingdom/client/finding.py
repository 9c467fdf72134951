"""The server of a folder, if one runs: where it is, and the token for it."""

from __future__ import annotations

import json
from pathlib import Path

from kingdom.client.errors import ClientError


class NoServer(ClientError):
    """No server runs for the folder."""

    code = "SYS_NO_SERVER"


def find_server(root: Path) -> tuple[str, str]:
    """The address and token of the server that runs for the home of a court or a folder of workflows.

    Raises :class:`NoServer`. Whether it answers, the first request tells.
    """
    folder = root / "state" / "web"
    try:
        url = json.loads((folder / "server.json").read_text("utf-8"))["url"]
        token = (folder / "token").read_text("utf-8").strip()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoServer(f"no server runs for {root}: kingdom web --home {root}, or kingdom up") from error
    return str(url), token
