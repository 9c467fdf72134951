"""The general: takes up its tasks, has soldiers do them, and reports what came of each."""

from kingdom.court.general.general import General

__all__ = ["General"]
