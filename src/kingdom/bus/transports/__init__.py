"""The transports: one module or package per URL scheme, found by its name (see kingdom.bus.transport)."""
