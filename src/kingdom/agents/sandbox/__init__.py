"""Confine agents: what a run sees of the machine, which hosts it reaches, and what it may use up.

======================= ==============================================================================================
``view``                the files that a run sees, as arguments for bubblewrap
``namespace``           a network namespace with loopback only, made by the shim
``gateway``             the only way out of it: named hosts, and the model with a key that the agent never sees
``sandbox``             whether this machine can confine, and how a run is wrapped
``escapes``             attempts to get out, for ``kingdom doctor``
======================= ==============================================================================================
"""
