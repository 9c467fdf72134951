"""Run agents: one port (:mod:`kingdom.agents.port`), and engines behind it.

The engines ``claude`` and ``codex`` run these command lines, ``command`` runs any program that follows the result
contract, and ``scripted`` plays a script, for demos and tests.
"""
