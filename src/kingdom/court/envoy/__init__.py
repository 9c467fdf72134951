"""The envoy: carries messages to people, and their answers back.

:class:`~kingdom.court.envoy.role.Envoy` is the loop over the queue; how a message is said is a
:class:`~kingdom.court.envoy.port.MessageSender`.
"""
