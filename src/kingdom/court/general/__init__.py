"""The general: claims tasks, has soldiers do them, and stores the results."""

from kingdom.court.general.general import General

__all__ = ["General"]
