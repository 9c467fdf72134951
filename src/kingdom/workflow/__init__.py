"""Workflows: agent work in steps, with git checkpoints to go back to.

A program that runs workflows needs these modules:

``home``       :func:`~kingdom.workflow.home.open_home` opens a folder of workflows and returns its context
``usecases``   what can be done with workflows: functions that take the context
``engine``     :func:`~kingdom.workflow.engine.run_engine` runs them; one engine per store, or several that share it
``commands``   pause, resume, … from a process that is not the engine
``overview``   everything about one workflow, as a document
``templates``  plans as YAML files
``errors``     all exceptions, each with a code

Below them, ``domain`` has the aggregates, their transitions and their events, without any I/O. ``store`` keeps
aggregates and events in one database, and ``handlers`` apply events, both in one transaction. ``adapters`` implement
the ``ports`` to agents, git and files. ``player`` lets a court run a task as a workflow.
"""
