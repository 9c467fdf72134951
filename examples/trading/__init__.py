"""Order execution on the bus: no order is placed twice and none is lost, whichever process dies.

::

    record_signal ──► everbit.trade.command ──► executor ───► exchange
     (one transaction)         ▲      │            │ 2xx, 4xx
                               │      └► reconciler│              ┌► notifier ──► push server
                               └── 429, UNKNOWN ───┴► everbit.trade.event

Every arrow into a stream is written in the transaction that changes the order's own rows.
"""
