"""The crash campaign: real processes, real kills, every crash point of one event's life, and disks that fail.

``python -m tests.chaos`` is the full run (``make chaos``); ``tests/chaos/test_*.py`` and
``tests/integration/test_crash_points_*.py`` are the shortened one inside ``make test``.

==============  ====================================================================================================
``engine``      the random campaign: a publisher and workers under load, killed at random instants
``walk``        the enumerated one: one event's life, stopped before each of its system calls in turn
``faults``      the same life with an I/O error or a full disk at each write
==============  ====================================================================================================
"""
