"""The errors of a court. Every message says what is wrong, where, and what to do next."""

from __future__ import annotations


class CourtError(Exception):
    """The base class of all errors of the court."""

    code = "COURT"


class HomeNotFound(CourtError):
    """No home was found."""

    code = "NO_HOME"


class InvalidId(CourtError):
    """A name that cannot be part of a path."""

    code = "INVALID_ID"


class InvalidDocument(CourtError):
    """A document that does not follow its schema."""

    code = "INVALID_DOCUMENT"


class AlreadyRunning(CourtError):
    """Another process runs the role."""

    code = "ALREADY_RUNNING"


class MachineRefused(CourtError):
    """A machine may not take part in the court."""

    code = "MACHINE_REFUSED"


class NotLeading(CourtError):
    """Another machine leads the court, or this one cannot be sure that it still does."""

    code = "NOT_LEADING"


class JoinedMachine(CourtError):
    """This machine runs generals of a court, and the court is directed elsewhere."""

    code = "JOINED_MACHINE"


class InvalidConfig(CourtError):
    """An invalid configuration file. The message has a line for each problem: ``file:line: what``."""

    code = "INVALID_CONFIG"


class UnsetVariable(InvalidConfig):
    """An environment variable that the configuration names is not set."""


class InvalidPackage(CourtError):
    """A general that cannot be installed, loaded or removed."""

    code = "INVALID_PACKAGE"


class UnknownGeneral(CourtError):
    """There is no general with this name."""

    code = "NO_GENERAL"
