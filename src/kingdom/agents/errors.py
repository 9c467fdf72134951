"""What can go wrong with agents. Every message says what, where, and what to do next.

::

    AgentsError                  anything the agents' side raises by itself
    ├── InvalidOrder             an order that cannot be carried out as it is (a ValueError too)
    ├── EngineUnknown            no engine of that name
    ├── EngineNotInstalled       the engine's program is not there
    ├── InvalidResult            a result that does not follow the contract (a ValueError too)
    ├── InvalidScript            a script that the scripted engine cannot play (a ValueError too)
    ├── AlreadyStarted           a run with this id was started before
    └── StartFailed              the program could not be started
"""

from __future__ import annotations


class AgentsError(Exception):
    """The root of all errors of the agents' side."""

    code = "AGENTS"


class InvalidOrder(AgentsError, ValueError):
    """An order that cannot be carried out: a bad run id, a folder that is not there, options of the wrong kind."""

    code = "INVALID_ORDER"


class EngineUnknown(AgentsError):
    """No engine has this name, here or in an installed distribution."""

    code = "ENGINE_UNKNOWN"


class EngineNotInstalled(AgentsError):
    """The engine is known, but its program is not on this machine."""

    code = "ENGINE_NOT_INSTALLED"


class InvalidResult(AgentsError, ValueError):
    """A result document that does not follow the contract."""

    code = "INVALID_RESULT"


class InvalidScript(AgentsError, ValueError):
    """A script for the scripted engine that makes no sense."""

    code = "INVALID_SCRIPT"


class AlreadyStarted(AgentsError):
    """A run with this id was started before: a run id is used once."""

    code = "ALREADY_STARTED"


class StartFailed(AgentsError):
    """The program of a run could not be started."""

    code = "START_FAILED"
