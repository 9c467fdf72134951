"""Requests to the server: token, envelope, idempotency keys, retries, errors."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from kingdom.base.backoff import backoff

# What can go wrong between a client and the server.


class ClientError(Exception):
    """Base class of the client's errors."""

    code = "SYS_CLIENT"


class ServerAway(ClientError):
    """The server does not respond, or it is not a Kingdom server."""

    code = "SYS_AWAY"


class Refused(ClientError):
    """The server answered with an error. ``code``, ``status`` and ``details`` are those of the response."""

    def __init__(self, status: int, code: str, message: str, details: list[Any]) -> None:
        super().__init__("; ".join([message, *map(_detail_text, details)]))
        self.status = status
        self.code = code
        self.details = details


def _detail_text(detail: Any) -> str:
    if isinstance(detail, Mapping) and "what" in detail:
        return f"{detail.get('where', '')}: {detail['what']}"
    return str(detail)


class TooOld(ClientError):
    """The events after the given number are no longer stored: reload the state and follow from ``number``."""

    code = "SYS_TOO_OLD"

    def __init__(self, number: int, oldest: int) -> None:
        super().__init__(
            f"events before number {oldest} are no longer stored: reload the state, continue from {number}"
        )
        self.number = number
        self.oldest = oldest


# Requests and answers: the token, the envelope, idempotency keys, and another try where that is safe.


_MAX_TRIES: Final = 3
_RETRY_SECONDS: Final = 0.2  # before the second attempt; doubled before the third
_RETRY_STATUSES: Final = (429, 503)
_MAX_RETRY_SECONDS: Final = 10.0  # also when Retry-After asks for more


class Connection:
    """A connection to one server.

    A request is retried after a broken connection. This is safe: requests that change something carry an
    ``Idempotency-Key``.
    """

    def __init__(
        self, url: str, token: str, *, timeout: float = 60.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=timeout,
            transport=transport,
            trust_env=False,  # no proxy for a server on loopback
            verify=self.url.startswith("https:"),  # without TLS, nothing needs certificates: to load them takes 26 ms
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def request(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Send a request. Returns the ``data`` of the response, or its text if it is not JSON.

        Raises :class:`Refused` for an error response and :class:`ServerAway` when there is no response.
        """
        headers = {"Idempotency-Key": str(uuid.uuid4())} if method != "GET" else {}
        params = given(query or {})
        for attempt in range(_MAX_TRIES):
            last = attempt == _MAX_TRIES - 1
            try:
                answer = self._http.request(method, path, params=params, json=body, headers=headers)
            except httpx.TransportError as error:
                if last or not isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
                    raise self._away(error) from error
                time.sleep(backoff(attempt, _RETRY_SECONDS, _MAX_RETRY_SECONDS))
                continue
            if last or answer.status_code not in _RETRY_STATUSES:
                break
            time.sleep(_retry_after(answer, backoff(attempt, _RETRY_SECONDS, _MAX_RETRY_SECONDS)))
        return _response_data(answer)

    def lines(self, path: str, *, query: Mapping[str, Any] | None = None, headers: Mapping[str, str]) -> Iterator[str]:
        """Yield the lines of a streaming response as they arrive."""
        params = given(query or {})
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
            f"no response from {self.url} ({str(error) or type(error).__name__}): is the server running? (kingdom web)"
        )


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value. The server's defaults hold for the others."""
    return {name: value for name, value in fields.items() if value is not None}


def path_segment(value: str) -> str:
    """Quote a value as one segment of a path."""
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
        raise ServerAway(f"{answer.url} answered {answer.status_code} without an envelope: is it a kingdom server?")
    document = answer.json()
    if not isinstance(document, dict) or "success" not in document:
        raise ServerAway(f"{answer.url} answered without an envelope: is it a kingdom server?")
    if document["success"]:
        return document["data"]
    error = document["error"]
    raise Refused(answer.status_code, error["code"], error["message"], error.get("details") or [])


# The server of a folder, if one runs: where it is, and the token for it.


class NoServer(ClientError):
    """No server is running for the folder."""

    code = "SYS_NO_SERVER"


def find_server(root: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the URL and token of the server that runs for a court's home or a workflow folder.

    Raises :class:`NoServer` when no server is recorded there. Does not check that the server responds.
    """
    folder = Path(root) / "state" / "web"
    try:
        url = json.loads((folder / "server.json").read_text("utf-8"))["url"]
        token = (folder / "token").read_text("utf-8").strip()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoServer(
            f"no server is running for {root}: start one with kingdom web --home {root}, or kingdom up"
        ) from error
    return str(url), token
