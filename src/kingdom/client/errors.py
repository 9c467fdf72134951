"""What can go wrong between a client and the server."""

from __future__ import annotations

from typing import Any


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
