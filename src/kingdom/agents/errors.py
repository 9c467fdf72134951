"""The exceptions of the agents package. Every message says what is wrong, where, and what to do.

::

    AgentsError                  base class
    ├── InvalidOrder             an order that cannot be executed (also a ValueError)
    ├── EngineUnknown            no engine of that name
    ├── EngineNotInstalled       the engine's program is missing
    ├── InvalidResult            a result that violates the contract (also a ValueError)
    ├── InvalidScript            a script that the scripted engine cannot play (also a ValueError)
    ├── AlreadyStarted           a run with this id was started before
    ├── SandboxUnavailable       the run must be confined, and this machine cannot do it
    └── StartFailed              the program could not be started
"""

from __future__ import annotations


class AgentsError(Exception):
    """Base class of all errors of this package."""

    code = "AGENTS"


class InvalidOrder(AgentsError, ValueError):
    """An order that cannot be executed: a bad run id, a missing folder, options of the wrong type."""

    code = "INVALID_ORDER"


class EngineUnknown(AgentsError):
    """No engine has this name, neither built in nor in an installed distribution."""

    code = "ENGINE_UNKNOWN"


class EngineNotInstalled(AgentsError):
    """The engine is known, but its program is not installed."""

    code = "ENGINE_NOT_INSTALLED"


class InvalidResult(AgentsError, ValueError):
    """A result document that violates the contract."""

    code = "INVALID_RESULT"


class InvalidScript(AgentsError, ValueError):
    """A script that the scripted engine cannot play."""

    code = "INVALID_SCRIPT"


class AlreadyStarted(AgentsError):
    """A run with this id was started before; a run id is used once."""

    code = "ALREADY_STARTED"


class StartFailed(AgentsError):
    """The program of a run could not be started."""

    code = "START_FAILED"


class SandboxUnavailable(AgentsError):
    """A run must be confined, and this machine cannot confine it."""

    code = "SANDBOX_UNAVAILABLE"
