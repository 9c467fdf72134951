"""Scripted stand-ins for the model services the real agent command lines talk to, on loopback."""

from tests.support.model_servers.messages import MessagesServer
from tests.support.model_servers.responses import ResponsesServer
from tests.support.model_servers.script import Refuse, Say, Stall, Turn, Use

__all__ = ["MessagesServer", "Refuse", "ResponsesServer", "Say", "Stall", "Turn", "Use"]
