"""``kingdom up``: starts the roles of a court, a process each, and starts again those that die.

The supervisor is a plain loop without threads or an event loop, so that it can fork: the roles share the memory of the
modules that it imported for them. Measured with ``kingdom up`` of a court with king, envoy and three generals, idle,
proportional set size of all processes together: see ``docs/explanation``.
"""
