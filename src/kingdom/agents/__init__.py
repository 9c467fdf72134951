"""Agents: one port for whoever has work done, adapters for those who do it.

``claude`` and ``codex`` are the real command lines, ``command`` is any program that follows the result contract, and
``scripted`` plays a part for demos and tests. See :mod:`kingdom.agents.port`.
"""
