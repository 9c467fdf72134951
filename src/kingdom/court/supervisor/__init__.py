"""``kingdom up``: start the roles of a court, one process each, and restart those that die.

The supervisor is a plain loop without threads or an event loop, so that it can fork: the roles share the memory of the
modules it has imported. Measured idle with king, envoy, chamberlain and three generals, as proportional set size of all
processes: 107 MiB forked, including the supervisor; 186 MiB as six separate ``kingdom role`` processes. All of them
together use 0.2 % of a core.
"""
