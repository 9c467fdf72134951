"""The configuration of a court: YAML files under ``config/``, each read into a model that knows its keys and limits.

Secrets never stand in these files: a file names the environment variable that holds one.
"""
