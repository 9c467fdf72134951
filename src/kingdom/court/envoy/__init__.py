"""The envoy: sends messages to people, and turns their replies into events.

:class:`~kingdom.court.envoy.role.Envoy` is the loop over the queue. A :class:`~kingdom.court.envoy.port.MessageSender`
delivers a message; a :class:`~kingdom.court.envoy.port.ReplyListener` receives replies.
"""
