"""Requests to the server: token, envelope, idempotency keys, retries, errors."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

# What can go wrong between a client and the server.


class ClientError(Exception):
    """The root of all errors of the client."""

    code = "SYS_CLIENT"


class ServerAway(ClientError):
    """Nobody answers at the address, or what answers is not our server."""

    code = "SYS_AWAY"


class Refused(ClientError):
    """The server answered with an error: its ``code``, ``status`` and ``details``."""

    def __init__(self, status: int, code: str, message: str, details: list[Any]) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details


class TooOld(ClientError):
    """Events behind the number given are not kept any more: read the state anew, and follow from ``number`` on."""

    code = "SYS_TOO_OLD"

    def __init__(self, number: int, oldest: int) -> None:
        super().__init__(f"events before number {oldest} are not kept: read the state anew and go on from {number}")
        self.number = number
        self.oldest = oldest


# Requests and answers: the token, the envelope, idempotency keys, and another try where that is safe.


_MAX_TRIES: Final = 3
_RETRY_SECONDS: Final = 0.2  # seconds before the second try, twice as long before the third
_RETRY_STATUSES: Final = (429, 503)
_MAX_RETRY_SECONDS: Final = 10.0  # seconds that we wait because the server said so


class Connection:
    """One server. A request may be sent again after a broken connection: a change carries a key that makes it one."""

    def __init__(
        self, url: str, token: str, *, timeout: float = 60.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=timeout,
            transport=transport,
            trust_env=False,  # a proxy has no business with a server on loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def request(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Send a request; returns the ``data`` of the answer, or its text where it is not JSON.

        Raises :class:`Refused` for an error of the server and :class:`ServerAway` when there is none.
        """
        headers = {"Idempotency-Key": str(uuid.uuid4())} if method != "GET" else {}
        params = {name: value for name, value in (query or {}).items() if value is not None}
        for attempt in range(_MAX_TRIES):
            last = attempt == _MAX_TRIES - 1
            try:
                answer = self._http.request(method, path, params=params, json=body, headers=headers)
            except httpx.TransportError as error:
                if last or not isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
                    raise self._away(error) from error
                time.sleep(_RETRY_SECONDS * 2**attempt)
                continue
            if last or answer.status_code not in _RETRY_STATUSES:
                break
            time.sleep(_retry_after(answer, _RETRY_SECONDS * 2**attempt))
        return _response_data(answer)

    def lines(self, path: str, *, query: Mapping[str, Any] | None = None, headers: Mapping[str, str]) -> Iterator[str]:
        """The lines of an answer without an end, as they come."""
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            with self._http.stream("GET", path, params=params, headers=dict(headers)) as answer:
                if answer.is_error:
                    answer.read()
                    _response_data(answer)
                yield from answer.iter_lines()
        except httpx.TransportError as error:
            raise self._away(error) from error

    def _away(self, error: httpx.TransportError) -> ServerAway:
        return ServerAway(
            f"no answer from {self.url} ({str(error) or type(error).__name__}): is the server up? (kingdom web)"
        )


def path_segment(value: str) -> str:
    """A value as one part of a path: no slash in it leads elsewhere."""
    return quote(value, safe="")


def _retry_after(answer: httpx.Response, otherwise: float) -> float:
    try:
        return min(float(answer.headers["Retry-After"]), _MAX_RETRY_SECONDS)
    except (KeyError, ValueError):
        return otherwise


def _response_data(answer: httpx.Response) -> Any:
    if answer.status_code == 204:
        return None
    kind = answer.headers.get("content-type", "")
    if not kind.startswith("application/json"):
        if answer.is_success:
            return answer.text
        raise ServerAway(f"{answer.url} answered {answer.status_code} and not in our form: is it a kingdom server?")
    document = answer.json()
    if not isinstance(document, dict) or "success" not in document:
        raise ServerAway(f"{answer.url} did not answer in our form: is it a kingdom server?")
    if document["success"]:
        return document["data"]
    error = document["error"]
    raise Refused(answer.status_code, error["code"], error["message"], error.get("details") or [])


# The server of a folder, if one runs: where it is, and the token for it.


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
