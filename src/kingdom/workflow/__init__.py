"""Workflows: agent work in steps, with git checkpoints one can go back to.

:mod:`kingdom.workflow.domain` says what there is and how it may change, without any I/O. Use cases and handlers change
it through the store, state and events in one transaction; the engine runs the handlers from the bus.
"""
