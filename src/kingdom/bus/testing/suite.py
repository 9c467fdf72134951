"""All behaviours in one class."""

from __future__ import annotations

from kingdom.bus.testing.behaviours.claiming import Claiming
from kingdom.bus.testing.behaviours.ending import Ending
from kingdom.bus.testing.behaviours.leases import Leases
from kingdom.bus.testing.behaviours.naming import Naming
from kingdom.bus.testing.behaviours.operating import Operating
from kingdom.bus.testing.behaviours.ordering import Ordering
from kingdom.bus.testing.behaviours.peeking import Peeking
from kingdom.bus.testing.behaviours.publishing import Publishing
from kingdom.bus.testing.behaviours.recalling import Recalling
from kingdom.bus.testing.behaviours.requeueing import Requeueing
from kingdom.bus.testing.behaviours.round_trip import RoundTrip
from kingdom.bus.testing.behaviours.settling import Settling
from kingdom.bus.testing.behaviours.stopping import Stopping
from kingdom.bus.testing.behaviours.storing import Storing
from kingdom.bus.testing.behaviours.surviving import Surviving
from kingdom.bus.testing.behaviours.waking import Waking
from kingdom.bus.testing.behaviours.working import Working


class ConformanceSuite(
    Publishing,
    RoundTrip,
    Claiming,
    Naming,
    Settling,
    Ending,
    Leases,
    Recalling,
    Peeking,
    Ordering,
    Operating,
    Requeueing,
    Storing,
    Waking,
    Working,
    Surviving,
    Stopping,
):
    """Every behaviour of a transport. Derive a ``Test…`` class and give it the fixture ``harness``."""
