"""The court: roles that hear events, turn them into tasks, have soldiers do them, and answer.

The home of a court is a folder (:mod:`kingdom.court.home`). Its three queues are streams of the bus
(:mod:`kingdom.court.queues`), its documents are those of :mod:`kingdom.court.models`, and each role is a small loop
(:mod:`kingdom.court.loop`) over what lies there.
"""
