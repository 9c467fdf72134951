"""The state of one stream in memory: what waits, what is held, what is dead, and what comes next.

Pure: no input or output, and the time is passed in. The ``memory`` and ``files`` transports stand on it. It knows the
active events only; an event that is DONE is removed, so that nothing here grows with history. Every operation on an
event costs O(log n).

An event is in one of three places at a time, each a heap:

* ``waiting``: pending, ordered by the time it becomes ready;
* ``ready``: claimable now, one heap for each priority and type, ordered by the time it became ready;
* ``leases``: held, ordered by the end of the lease.

In an ordered stream only one event of each aggregate, its first unfinished one, stands in them at all.
"""

from kingdom.bus.stream_state._entry import LEASE_EXPIRED, NORMAL, Entry, aggregate_key, moment, new_entry
from kingdom.bus.stream_state._state import StreamState

__all__ = ["LEASE_EXPIRED", "NORMAL", "Entry", "StreamState", "aggregate_key", "moment", "new_entry"]
