"""``kingdom up``: starts the roles of a court, a process each, and starts again those that die.

The supervisor is a plain loop without threads or an event loop, so that it can fork: the roles share the memory of the
modules it has imported for them. Measured idle, king, envoy, chamberlain and three generals, proportional set size of
all processes: forked 107 MiB with the supervisor itself; as six times ``kingdom role`` 186 MiB without one. All of them
together take 0.2 % of a core.
"""
