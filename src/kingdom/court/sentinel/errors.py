"""What a source can answer instead of what was asked for."""

from __future__ import annotations

from kingdom.court.errors import CourtError


class SourceError(CourtError):
    """The root of what goes wrong with a source."""

    code = "SOURCE"


class Busy(SourceError):
    """The source wants to be left alone for ``wait`` seconds."""

    code = "SOURCE_BUSY"

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class Refused(SourceError):
    """The source knows us and says no: a wrong token, or one that may not do this. A person has to mend it."""

    code = "SOURCE_REFUSED"


class Unauthorized(Refused):
    """The token itself is not accepted, for anything."""

    code = "SOURCE_UNAUTHORIZED"


class Missing(SourceError):
    """What was asked for is not there, or not for us."""

    code = "SOURCE_MISSING"


class Unavailable(SourceError):
    """The source cannot be reached, or does not work, or makes no sense."""

    code = "SOURCE_UNAVAILABLE"


class CircuitOpen(Unavailable):
    """The source failed several times in a row: it is not asked for a while."""

    code = "SOURCE_CIRCUIT_OPEN"
