"""The worker: claims events of one stream, runs handlers, writes what became of them."""

from kingdom.bus.worker._worker import Worker

__all__ = ["Worker"]
