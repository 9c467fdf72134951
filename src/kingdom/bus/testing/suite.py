"""All behaviours in one class."""

from __future__ import annotations

from kingdom.bus.testing.behaviours.claims import ClaimBehaviours, NamedClaimBehaviours, PeekBehaviours
from kingdom.bus.testing.behaviours.leases import LeaseBehaviours, RecallBehaviours
from kingdom.bus.testing.behaviours.operations import OperatorBehaviours, RequeueBehaviours
from kingdom.bus.testing.behaviours.order import OrderBehaviours
from kingdom.bus.testing.behaviours.publication import (
    PublishBehaviours,
    RoundTripBehaviours,
    StoreBehaviours,
    WakeBehaviours,
)
from kingdom.bus.testing.behaviours.verdicts import OutcomeBehaviours, SettleBehaviours
from kingdom.bus.testing.behaviours.workers import StopBehaviours, WorkerBehaviours, WorkerLeaseBehaviours


class ConformanceSuite(
    PublishBehaviours,
    RoundTripBehaviours,
    ClaimBehaviours,
    NamedClaimBehaviours,
    SettleBehaviours,
    OutcomeBehaviours,
    LeaseBehaviours,
    RecallBehaviours,
    PeekBehaviours,
    OrderBehaviours,
    OperatorBehaviours,
    RequeueBehaviours,
    StoreBehaviours,
    WakeBehaviours,
    WorkerBehaviours,
    WorkerLeaseBehaviours,
    StopBehaviours,
):
    """Every behaviour of a transport. Derive a ``Test…`` class with a fixture ``harness``."""
