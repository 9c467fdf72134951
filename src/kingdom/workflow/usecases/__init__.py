"""What can be done with workflows."""

from __future__ import annotations


# What can be done with workflows: one module for each use case.
#
# Those that people call open their own transactions. ``StartNextWork``, ``SendQuery`` and ``CompleteTask`` are steps of
# a running workflow and work inside the transaction of whoever takes them.


# What several use cases and handlers share: resources, checkpoints, and stopping.
