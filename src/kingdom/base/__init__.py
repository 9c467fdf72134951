"""The ground floor: what every other package builds on, and nothing that depends on any of them.

Durable files, file locks, back-off, times, text, watched files, JSON. Standard library only, except for
:mod:`kingdom.base.yamlfile`, which needs PyYAML and pydantic and which no other module here imports.
"""
