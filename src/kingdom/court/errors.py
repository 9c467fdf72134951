"""What can be wrong in a court. Every message says what, where, and what to do next."""

from __future__ import annotations


class CourtError(Exception):
    """The root of all errors of the court."""

    code = "COURT"


class HomeNotFound(CourtError):
    """There is no court here."""

    code = "NO_HOME"


class InvalidId(CourtError):
    """A name that must not become part of a path."""

    code = "INVALID_ID"


class InvalidDocument(CourtError):
    """A document that does not follow its schema."""

    code = "INVALID_DOCUMENT"


class AlreadyRunning(CourtError):
    """Another process has the role."""

    code = "ALREADY_RUNNING"


class InvalidConfig(CourtError):
    """A configuration file that cannot be used. The message has a line for each problem: ``file:line: what``."""

    code = "INVALID_CONFIG"


class InvalidPackage(CourtError):
    """A general that cannot be installed, loaded or removed as asked."""

    code = "INVALID_PACKAGE"
