"""The court: roles that receive events, turn them into tasks, run soldiers on them, and report the results.

The home of a court is a folder (:mod:`kingdom.court.home`). Its three queues are streams of the bus
(:mod:`kingdom.court.queues`), its documents are defined in :mod:`kingdom.court.models`, and each role is a small loop
(:mod:`kingdom.court.loop`).
"""
