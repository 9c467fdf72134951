"""A client of the web server: ``Client(url, token)``, with one method per operation of the API.

>>> from kingdom.client import Client
>>> with Client("http://127.0.0.1:8700", token) as kingdom:          # doctest: +SKIP
...     for workflow in kingdom.every(kingdom.list_workflows, status="RUNNING"):
...         kingdom.pause_workflow(workflow["id"])
"""

from __future__ import annotations

from kingdom.client.client import Client
from kingdom.client.connection import ClientError, NoServer, Refused, ServerAway, TooOld, find_server

__all__ = ["Client", "ClientError", "NoServer", "Refused", "ServerAway", "TooOld", "find_server"]
