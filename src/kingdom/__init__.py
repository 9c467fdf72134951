"""Kingdom: an event-driven runtime for AI teammates, and the durable event bus it stands on."""

__version__ = "0.1.0"
